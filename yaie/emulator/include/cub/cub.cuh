// Replaces CUB, as far as a warp or a thread block reduces, scans, loads and stores.
#pragma once

#include "block/block_load.cuh"
#include "block/block_reduce.cuh"
#include "block/block_scan.cuh"
