// Prefix sum, rung 1 of 2: Blelloch's scan in shared memory.
//
// Computes  out[i] = x[0] + … + x[i - 1] for i = 0 … n: out[0] is 0 and out[n] is the sum of all
// Shapes    x [n] and out [n + 1], int32; the caller chooses the number of threads, a power of two
// Owns      one thread block: all of x, in tiles of 2 × blockDim.x elements; each thread: one pair
//           of elements in every step
// Moves     4 × (2 × n + 1) bytes
// Oracle    a loop in Python, in tests/test_scan.py
// Idea      on the way up, sums are built of pairs, of pairs of pairs, and so on, and each group's
//           sum stays in its last element. On the way down, each group passes the sum of everything
//           before it to its left half, and that plus the sum of the left half to its right half.
//           That takes about 2 × n additions in 2 × log2(n) steps.
// Source    Blelloch, "Prefix sums and their applications", 1990
#include "common.cuh"

constexpr int MAX_THREADS = 1024;

__global__ void blelloch(const int* x, int* out, int n) {
    extern __shared__ int sums[];
    __shared__ int total;
    int width = 2 * blockDim.x, carry = 0;  // elements per tile; the sum of the tiles before it
    // exercise 20.1 begin: each tile up and down; then out[n]
    for (int first = 0; first < n; first += width) {
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            sums[i] = i < n - first ? x[first + i] : 0;
        }
        for (int half = 1; half < width; half *= 2) {  // up: groups of 2 × half elements
            __syncthreads();
            int last = (threadIdx.x + 1) * 2 * half - 1;
            if (last < width) sums[last] += sums[last - half];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            total = sums[width - 1];
            sums[width - 1] = 0;  // nothing precedes the whole tile
        }
        for (int half = width / 2; half > 0; half /= 2) {  // down
            __syncthreads();
            int last = (threadIdx.x + 1) * 2 * half - 1;
            if (last < width) {
                int left = sums[last - half];
                sums[last - half] = sums[last];
                sums[last] += left;
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < min(width, n - first); i += blockDim.x) {
            out[first + i] = carry + sums[i];
        }
        carry += total;
    }
    if (threadIdx.x == 0) out[n] = carry;
    // exercise 20.1 end
}

extern "C" cudaError_t blelloch_i32(const int* x, int* out, int n, int threads,
                                    cudaStream_t stream) {
    bool power_of_two = threads > 0 && (threads & (threads - 1)) == 0;
    if (!power_of_two || threads > MAX_THREADS) return cudaErrorInvalidValue;
    blelloch<<<1, threads, 2 * threads * sizeof(int), stream>>>(x, out, n);
    return cudaGetLastError();
}
