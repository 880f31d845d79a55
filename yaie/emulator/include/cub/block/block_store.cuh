#pragma once
#include "block_load.cuh"
