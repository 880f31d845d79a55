// A float32 matrix by a vector, with vector registers and threads.
//
// Computes  out[r] = Σ over k of weights[r][k] × x[k]
// Shapes    weights [rows, size], x [size], out [rows]; any rows and size
// Owns      each thread: rows that follow each other, four of them at a time
// Moves     the weights once; x stays in the nearest cache
// Oracle    float64, in tests/test_own_roof.py and in the check of exercise 10.1
// Idea      an addition has its result after some cycles, and another one may begin in each: so the
//           sums of four rows go on side by side, and one load of x serves all four.
#include "cpu/lanes.h"

struct Range {
    int64_t first, last;  // last is the first one that is not in it
};

// The rows of thread `thread` of `threads`.
static Range share(int64_t rows, int64_t thread, int64_t threads) {
    Range range = {0, 0};
    // exercise 10.1 begin: all rows, each in one thread's range, the lengths at most 1 apart
    range.first = rows * thread / threads;
    range.last = rows * (thread + 1) / threads;
    // exercise 10.1 end
    return range;
}

// out[r] of ROWS rows, which are `size` numbers apart.
template <int ROWS>
static void multiply(const float* weights, const float* x, float* out, int64_t size) {
    // exercise 10.1 begin: vectors of LANES numbers, then the numbers that are left
    Floats sums[ROWS] = {};
    int64_t k = 0;
    for (; k + LANES <= size; k += LANES) {
        Floats value = load<Floats>(x + k);
        for (int r = 0; r < ROWS; ++r) sums[r] += load<Floats>(weights + r * size + k) * value;
    }
    for (int r = 0; r < ROWS; ++r) {
        out[r] = sum(sums[r]);
        for (int64_t i = k; i < size; ++i) out[r] += weights[r * size + i] * x[i];
    }
    // exercise 10.1 end
}

extern "C" void row_product(const float* weights, const float* x, float* out, int64_t rows,
                            int64_t size, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t thread = 0; thread < threads; ++thread) {
        Range range = share(rows, thread, threads);
        int64_t r = range.first;
        for (; r + 4 <= range.last; r += 4) multiply<4>(weights + r * size, x, out + r, size);
        for (; r < range.last; ++r) multiply<1>(weights + r * size, x, out + r, size);
    }
}

// ranges [threads, 2]: where the rows of each thread begin and end.
extern "C" void row_shares(int64_t* ranges, int64_t rows, int64_t threads) {
    for (int64_t thread = 0; thread < threads; ++thread) {
        Range range = share(rows, thread, threads);
        ranges[2 * thread] = range.first;
        ranges[2 * thread + 1] = range.last;
    }
}
