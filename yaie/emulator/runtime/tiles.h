// Products of tiles as mma.sync computes them, of registers that the lanes of a warp hold.
#pragma once

#include "../include/emulator/api.h"

namespace emulator {

struct LaneTile {  // what a lane gives, and what it gets
    TileProduct product;
    uint32_t a[4], b[2], c[4], d[4];
};

// Computes d = a b + c for the lanes that take part. Those that do not are null, and count as if all
// bits of their registers were 1.
void multiply_tiles(LaneTile* const (&lanes)[32]);

}  // namespace emulator
