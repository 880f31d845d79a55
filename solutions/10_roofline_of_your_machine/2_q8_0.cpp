// Solution of exercise 10.2: Weights of 8 bits, multiplied as they are stored.
//
// Write `multiply` for weights in GGUF's format Q8_0: `*out` becomes the product of one row by x. A
// row consists of `groups` groups of 34 bytes that follow each other: a scale in float16, then 32
// signed bytes. A group stands for 32 weights, each of them its byte × the scale. Write no
// dequantized weights to memory: convert LANES bytes in a register, multiply them by x, and multiply
// by the scale once per vector or once per group, not 32 times.
//
// Generated from q8_0_product in csrc/roofline/q8_0_product.cpp.
// Edit it there, and run `python -m yaie.course build`.

// A matrix of 8-bit groups by a vector: GGUF's format Q8_0, read as it is stored.
//
// Computes  out[r] = Σ over groups of scale × Σ over its 32 numbers of number × x
// Shapes    weights [rows, size / 32] groups of 34 bytes: a scale in float16, 32 signed bytes;
//           x [size], out [rows] in float32; size a multiple of 32
// Owns      each thread: rows that follow each other, one at a time
// Moves     the groups once: 34 bytes for 32 weights, where float32 has 128
// Oracle    float64 of the numbers that the groups stand for, in tests/test_own_roof.py and in the
//           check of exercise 10.2
// Idea      the bytes become floats in registers only, and a scale is multiplied once for a group. A
//           row at a time is one stream of memory, which the processor fetches ahead; the sums of
//           groups are independent until they are added to the row's.
#include "cpu/lanes.h"

constexpr int NUMBERS = 32, BYTES = 34;  // of a group

// The product of one row by x, which has `groups` × NUMBERS numbers.
static void multiply(const uint8_t* row, const float* x, float* out, int64_t groups) {
    // exercise 10.2 begin: the groups of the row by x
    Floats total = {};
    for (int64_t g = 0; g < groups; ++g) {
        const uint8_t* group = row + g * BYTES;
        Floats inside = {};
        for (int i = 0; i < NUMBERS; i += LANES) {
            Ints number = integers<Ints, int8_t>(group + 2 + i);
            Floats value = load<Floats>(x + g * NUMBERS + i);
            inside += __builtin_convertvector(number, Floats) * value;
        }
        total += inside * scale_at(group);
    }
    *out = sum(total);
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
