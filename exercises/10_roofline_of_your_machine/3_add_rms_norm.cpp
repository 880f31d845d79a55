// Exercise 10.3: The residual added and normalized.
// Your part begins in line 33 of this file.
//
// Write `add_and_normalize` for one row of `size` numbers: total = x + residual, and out = total /
// √(mean(total²) + eps) × weight. Take LANES numbers at a time, and the rest of the row one by one.
// Read x and residual once each, and take the squares of the sum while it is in a register. The
// engine calls this operator twice per layer, so with `yaie chat --exercises` the model computes
// with your lines.
//
// You have
// - `x`, `residual`, `weight`: float, `size` numbers each
// - `total`, `out`: float, `size` places each
// - `eps`, `sqrtf(v)`: a float; the square root
// - `LANES`, `Floats`: 4, 8 or 16, by the processor; a vector of that many floats, for which +, *
//   and += work, also with a float
// - `load<Floats>(from)`, `store(to, value)`: read and write a vector at an address, which may be
//   any
// - `sum(value)`: returns the sum over the lanes, a float
//
// In a terminal: yaie check 10.3, yaie hint 10.3, yaie reset 10.3.

// The residual added and the sum normalized, in one call.
//
// Computes  total = x + residual and out = total / √(mean of total² + eps) × weight, row by row
// Shapes    x, residual, out and total [rows, size], weight [size], all float32; any rows and size
// Owns      each thread: whole rows
#include <cmath>

#include "cpu/lanes.h"

static void add_and_normalize(const float* x, const float* residual, const float* weight,
                              float* out, float* total, int64_t size, float eps) {
    // exercise 10.3 begin: the sum and its squares, then the row by its scale and the weight
    // your lines
    // exercise 10.3 end
}

extern "C" void add_rms_norm(const float* x, const float* residual, const float* weight, float* out,
                             float* total, int64_t rows, int64_t size, double eps,
                             int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r)
        add_and_normalize(x + r * size, residual + r * size, weight, out + r * size,
                          total + r * size, size, eps);
}
