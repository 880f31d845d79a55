// Exercise 10.2: Weights of 8 bits, multiplied as they are stored.
// Your part begins in line 37 of this file.
//
// Write `multiply` for weights in GGUF's format Q8_0: `*out` becomes the product of one row by x. A
// row consists of `groups` groups of 34 bytes that follow each other: a scale in float16, then 32
// signed bytes. A group stands for 32 weights, each of them its byte × the scale. Write no
// dequantized weights to memory: convert LANES bytes in a register, multiply them by x, and multiply
// by the scale once per vector or once per group, not 32 times.
//
// You have
// - `row`: the address of the row's bytes: `groups` groups of BYTES (34) bytes
// - `x`, `out`: float: `groups` × NUMBERS (32) numbers; one place, `*out`
// - `scale_at(address)`: returns the scale in the two bytes at an address, where a group begins, as
//   a float
// - `integers<Ints, int8_t>(from)`: returns LANES signed bytes as a vector `Ints` of ints
// - `__builtin_convertvector(number, Floats)`: ints as floats
// - `LANES`, `Floats`: 4, 8 or 16, by the processor; a vector of that many floats, for which +, *
//   and += work, also with a float
// - `load<Floats>(from)`, `store(to, value)`: read and write a vector at an address, which may be
//   any
// - `sum(value)`: returns the sum over the lanes, a float
//
// In a terminal: yaie check 10.2, yaie hint 10.2, yaie reset 10.2.

// A matrix of 8-bit groups by a vector: GGUF's format Q8_0, read as it is stored.
//
// Computes  out[r] = Σ over groups of scale × Σ over its 32 numbers of number × x
// Shapes    weights [rows, size / 32] groups of 34 bytes: a scale in float16, 32 signed bytes;
//           x [size], out [rows] in float32; size a multiple of 32
// Owns      each thread: rows that follow each other, one at a time
#include "cpu/lanes.h"

constexpr int NUMBERS = 32, BYTES = 34;  // of a group

// The product of one row by x, which has `groups` × NUMBERS numbers.
static void multiply(const uint8_t* row, const float* x, float* out, int64_t groups) {
    // exercise 10.2 begin: the groups of the row by x
    // your lines
    // exercise 10.2 end
}

extern "C" void q8_0_product(const uint8_t* weights, const float* x, float* out, int64_t rows,
                             int64_t size, int64_t threads) {
    const int64_t groups = size / NUMBERS;
#pragma omp parallel for num_threads(threads)
    for (int64_t thread = 0; thread < threads; ++thread) {
        int64_t first = rows * thread / threads, last = rows * (thread + 1) / threads;
        for (int64_t r = first; r < last; ++r)
            multiply(weights + r * groups * BYTES, x, out + r, groups);
    }
}
