// In NVIDIA's kit a part of cuda_pipeline.h.
#pragma once
#include "cuda_pipeline.h"
