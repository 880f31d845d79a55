// Replaces NVIDIA's cuda_fp16.h.
#pragma once

#include "cuda_runtime.h"
#include "emulator/float16.h"

using __half = emulator::Small<emulator::HalfFormat>;
using __half2 = emulator::Pair<emulator::HalfFormat>;
using half = __half;
using half2 = __half2;
EMULATOR_SMALL(__half, half)
