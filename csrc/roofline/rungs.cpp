// The roof of a processor, and the rungs of a matrix-vector product that no exercise writes.
//
// Computes  a copy, a sum of all numbers, multiplications in registers; and out = weights · x
// Shapes    weights [rows, size], x [size], out [rows]; rows and size multiples of 32
// Owns      each thread: numbers or rows that follow each other
// Moves     what each function says; the products: their weights once
// Oracle    float64, in tests/test_own_roof.py
// Idea      the roof is measured with the loops that the products have: plain C++, the compiler's
//           vectors, all threads.
#include "cpu/lanes.h"

// ---------------------------------------------------------------- the roof

// 8 bytes per number: one load, one store.
extern "C" void copy_numbers(const float* from, float* to, int64_t count, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t thread = 0; thread < threads; ++thread) {
        int64_t first = count * thread / threads, last = count * (thread + 1) / threads;
        for (int64_t i = first; i < last; ++i) to[i] = from[i];
    }
}

// 4 bytes per number: one load. One sum per thread in out, of eight that are under way together; a
// thread's numbers after the last 8 × LANES are left out.
extern "C" void read_numbers(const float* from, float* out, int64_t count, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t thread = 0; thread < threads; ++thread) {
        int64_t first = count * thread / threads, last = count * (thread + 1) / threads;
        Floats sums[8] = {}, all = {};
        for (int64_t i = first; i + 8 * LANES <= last; i += 8 * LANES)
            for (int s = 0; s < 8; ++s) sums[s] += load<Floats>(from + i + s * LANES);
        for (int s = 0; s < 8; ++s) all += sums[s];
        out[thread] = sum(all);
    }
}

constexpr int CHAINS = 12;  // multiply-adds under way: more than a processor needs to be busy

// No bytes: `steps` × CHAINS × LANES multiplications and as many additions in each thread.
extern "C" void multiply_add(float* out, int64_t steps, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t thread = 0; thread < threads; ++thread) {
        Floats sums[CHAINS], all = {};
        for (int c = 0; c < CHAINS; ++c) sums[c] = splat(1.0f + c);
        Floats by = splat(0.999f), more = splat(0.001f);
        for (int64_t step = 0; step < steps; ++step)
            for (int c = 0; c < CHAINS; ++c) sums[c] = sums[c] * by + more;
        for (int c = 0; c < CHAINS; ++c) all += sums[c];
        out[thread] = sum(all);
    }
}

extern "C" void count_lanes(int64_t* lanes) { *lanes = LANES; }

// ---------------------------------------------------------------- the rungs

// One number after the other: each addition waits for the one before it.
extern "C" void naive_product(const float* weights, const float* x, float* out, int64_t rows,
                              int64_t size, int64_t) {
    for (int64_t r = 0; r < rows; ++r) {
        float total = 0.0f;
        for (int64_t k = 0; k < size; ++k) total += weights[r * size + k] * x[k];
        out[r] = total;
    }
}

// LANES numbers at a time, in one sum: each addition still waits for the one before it.
extern "C" void vector_product(const float* weights, const float* x, float* out, int64_t rows,
                               int64_t size, int64_t) {
    for (int64_t r = 0; r < rows; ++r) {
        Floats total = {};
        for (int64_t k = 0; k < size; k += LANES)
            total += load<Floats>(weights + r * size + k) * load<Floats>(x + k);
        out[r] = sum(total);
    }
}

constexpr int PANEL = 32;  // rows that lie together, their numbers interleaved

// Weights [rows / PANEL, size, PANEL]: lane i of a vector is a number of row i.
extern "C" void packed_product(const float* weights, const float* x, float* out, int64_t rows,
                               int64_t size, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < rows / PANEL; ++p) {
        const float* panel = weights + p * PANEL * size;
        Floats sums[PANEL / LANES] = {};
        for (int64_t k = 0; k < size; ++k)
            for (int v = 0; v < PANEL / LANES; ++v)
                sums[v] += load<Floats>(panel + k * PANEL + v * LANES) * x[k];
        for (int v = 0; v < PANEL / LANES; ++v) store(out + p * PANEL + v * LANES, sums[v]);
    }
}

constexpr int STEP = 32;  // numbers: a group of GGUF, or some vectors of floats

// Rows in a format of lanes.h, one at a time: one stream of memory, which is fetched ahead.
template <class F>
static void product_of(const uint8_t* weights, const float* x, float* out, int64_t rows,
                       int64_t size, int64_t threads) {
    const int64_t bytes = size / F::GROUP * F::BYTES;
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        Floats sums[STEP / LANES] = {}, all = {};
        for (int64_t k = 0; k < size; k += STEP)
            for (int v = 0; v < STEP / LANES; ++v) {
                int64_t i = k + v * LANES;
                const uint8_t* group = weights + r * bytes + i / F::GROUP * F::BYTES;
                sums[v] += F::unpack(group, i % F::GROUP / LANES) * load<Floats>(x + i);
            }
        for (int v = 0; v < STEP / LANES; ++v) all += sums[v];
        out[r] = sum(all);
    }
}
extern "C" void bfloat16_product(const uint16_t* weights, const float* x, float* out, int64_t rows,
                                 int64_t size, int64_t threads) {
    product_of<BF16>((const uint8_t*)weights, x, out, rows, size, threads);
}
extern "C" void q4_0_product(const uint8_t* weights, const float* x, float* out, int64_t rows,
                             int64_t size, int64_t threads) {
    product_of<Q4_0>(weights, x, out, rows, size, threads);
}
