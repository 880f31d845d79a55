// Products of tiles as mma.sync computes them, of registers that the lanes of a warp hold.
#pragma once

#include "../include/emulator/api.h"

namespace emulator {

struct LaneTile {  // what a lane gives, and what it gets
    TileProduct product;
    uint32_t a[4], b[2], c[4], d[4];
};

// Computes d = a b + c for the lanes that are there; those that are not, null, hold bits of 1.
void multiply_tiles(LaneTile* const (&lanes)[32]);

}  // namespace emulator
