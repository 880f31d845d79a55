// A part of cuda_pipeline.h in NVIDIA's toolkit.
#pragma once
#include "cuda_pipeline.h"
