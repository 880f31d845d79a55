// Exercise 10.1: A matrix by a vector, in vectors and threads.
// Your parts begin in lines 41 and 50 of this file.
//
// Write two pieces of `row_product`. `share` says which rows a thread takes: all rows together, each
// row in one range, and no range longer by more than 1 than another, whatever the numbers of rows
// and threads are. `multiply<ROWS>` writes out[0] to out[ROWS - 1], the products of ROWS rows by x;
// the rows begin `size` numbers apart. It takes LANES numbers of each row at a time, and the last
// numbers of a row, if fewer than LANES are left, one by one. Load each vector of x once for all
// ROWS rows.
//
// You have
// - `rows`, `thread`, `threads`: int64_t: how many rows there are; which thread this is, from 0, of
//   how many
// - `range.first`, `range.last`: int64_t, to be set; `last` is the first row that is not in the
//   range
// - `weights`, `x`, `out`: float: ROWS rows of `size` numbers, one after the other; `size` numbers;
//   ROWS places
// - `ROWS`: a constant, 1 or 4
// - `LANES`, `Floats`: 4, 8 or 16, by the processor; a vector of that many floats, for which +, *
//   and += work, also with a float
// - `load<Floats>(from)`, `store(to, value)`: read and write a vector at an address, which may be
//   any
// - `sum(value)`: returns the sum over the lanes, a float
//
// In a terminal: yaie check 10.1, yaie hint 10.1, yaie reset 10.1.

// A float32 matrix by a vector, with vector registers and threads.
//
// Computes  out[r] = Σ over k of weights[r][k] × x[k]
// Shapes    weights [rows, size], x [size], out [rows]; any rows and size
// Owns      each thread: rows that follow each other, four of them at a time
#include "cpu/lanes.h"

struct Range {
    int64_t first, last;  // last is the first one that is not in it
};

// The rows of thread `thread` of `threads`.
static Range share(int64_t rows, int64_t thread, int64_t threads) {
    Range range = {0, 0};
    // exercise 10.1 begin: all rows, each in one thread's range, the lengths at most 1 apart
    // your lines
    // exercise 10.1 end
    return range;
}

// out[r] of ROWS rows, which are `size` numbers apart.
template <int ROWS>
static void multiply(const float* weights, const float* x, float* out, int64_t size) {
    // exercise 10.1 begin: vectors of LANES numbers, then the numbers that are left
    // your lines
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
