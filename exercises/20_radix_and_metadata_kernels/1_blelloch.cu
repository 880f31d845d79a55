// Exercise 20.1: A prefix sum, up and down a tree.
// Your part begins in line 35 of this file.
//
// One thread block writes all prefix sums of x: out[i] is the sum of the numbers before i, for i = 0
// … n, so out[0] is 0 and out[n] the sum of all. It takes x in tiles of `width` numbers, two for
// each thread, a power of two; `sums` has as many elements. Sum up groups of 2, 4, 8, … elements
// (each group's sum in its last element), keep the whole sum in `total`, put 0 there, and go down
// again: each group's last element holds what lies before the group; the left half gets that, the
// right half that plus the left half's sum. `carry` is what the tiles before this one add up to.
//
// You have
// - `x`, `out`, `n`: int32, `n` and `n + 1` numbers; `n` may be 0
// - `sums`, `total`: ints in shared memory: `width` of them; one
// - `width`, `carry`: 2 × blockDim.x, a power of two; int, 0 at first, each thread has its own
// - `threadIdx.x`, `blockDim.x`: the number of this thread, how many there are
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 20.1, yaie hint 20.1, yaie reset 20.1.

// Prefix sum, rung 1 of 2: Blelloch's scan in shared memory.
//
// Computes  out[i] = x[0] + … + x[i - 1] for i = 0 … n: out[0] is 0 and out[n] is the sum of all
// Shapes    x [n] and out [n + 1], int32; the caller chooses the number of threads, a power of two
// Owns      one thread block: all of x, in tiles of 2 × blockDim.x elements; each thread: one pair
//           of elements in every step
// Source    Blelloch, "Prefix sums and their applications", 1990
#include "common.cuh"

constexpr int MAX_THREADS = 1024;

__global__ void blelloch(const int* x, int* out, int n) {
    extern __shared__ int sums[];
    __shared__ int total;
    int width = 2 * blockDim.x, carry = 0;  // elements per tile; the sum of the tiles before it
    // exercise 20.1 begin: each tile up and down; then out[n]
    // your lines
    // exercise 20.1 end
}

extern "C" cudaError_t blelloch_i32(const int* x, int* out, int n, int threads,
                                    cudaStream_t stream) {
    bool power_of_two = threads > 0 && (threads & (threads - 1)) == 0;
    if (!power_of_two || threads > MAX_THREADS) return cudaErrorInvalidValue;
    blelloch<<<1, threads, 2 * threads * sizeof(int), stream>>>(x, out, n);
    return cudaGetLastError();
}
