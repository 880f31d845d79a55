// Hillis and Steele's scan: right, with n × log2(n) additions.
// EXPECT = "about n × log2(n) additions"
#include "common.cuh"

constexpr int MAX_THREADS = 1024;

__global__ void blelloch(const int* x, int* out, int n) {
    extern __shared__ int sums[];
    __shared__ int total;
    int width = 2 * blockDim.x, carry = 0;  // numbers of a tile; the sum of the tiles before it
    for (int first = 0; first < n; first += width) {
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            sums[i] = i < n - first ? x[first + i] : 0;
        }
        for (int half = 1; half < width; half *= 2) {
            __syncthreads();
            int low = threadIdx.x, high = low + blockDim.x;
            int add_low = low >= half ? sums[low - half] : 0;
            int add_high = high >= half ? sums[high - half] : 0;
            __syncthreads();
            sums[low] += add_low;
            sums[high] += add_high;
        }
        __syncthreads();
        int low = threadIdx.x, high = low + blockDim.x;
        int new_low = low > 0 ? sums[low - 1] : 0, new_high = sums[high - 1];
        if (threadIdx.x == 0) total = sums[width - 1];
        __syncthreads();
        sums[low] = new_low;
        sums[high] = new_high;
        __syncthreads();
        for (int i = threadIdx.x; i < min(width, n - first); i += blockDim.x) {
            out[first + i] = carry + sums[i];
        }
        carry += total;
    }
    if (threadIdx.x == 0) out[n] = carry;
}

extern "C" cudaError_t blelloch_i32(const int* x, int* out, int n, int threads,
                                    cudaStream_t stream) {
    bool power_of_two = threads > 0 && (threads & (threads - 1)) == 0;
    if (!power_of_two || threads > MAX_THREADS) return cudaErrorInvalidValue;
    blelloch<<<1, threads, 2 * threads * sizeof(int), stream>>>(x, out, n);
    return cudaGetLastError();
}
