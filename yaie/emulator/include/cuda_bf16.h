// Replaces NVIDIA's cuda_bf16.h.
#pragma once

#include "cuda_runtime.h"
#include "emulator/float16.h"

using __nv_bfloat16 = emulator::Small<emulator::BrainFormat>;
using __nv_bfloat162 = emulator::Pair<emulator::BrainFormat>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
EMULATOR_SMALL(__nv_bfloat16, bfloat16)
