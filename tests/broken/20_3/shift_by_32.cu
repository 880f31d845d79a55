// In the first round a key is shifted by all of its bits.
// EXPECT = "a shift by 32 bits is undefined"
#include "common.cuh"

constexpr int THREADS = 256, BINS = 256;
typedef unsigned long long Mass;  // what atomicAdd calls 64 bits

// Ascending integers are descending floats.
static __device__ unsigned descending(float x) {
    unsigned bits = __float_as_uint(x + 0.0f);  // −0 becomes 0
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}
static __device__ float float_of(unsigned key) {
    return __uint_as_float(key >> 31 ? key : ~key & 0x7fffffffu);
}
static __device__ Mass mass_of(float x, float best) {
    return (Mass)(expf(x - best) * 16777216.0f + 0.5f);
}

template <typename T>
__global__ void top_p_threshold(const T* x, const float* best, const int64_t* enough,
                                float* threshold, int64_t* above, int rows, int columns) {
    __shared__ Mass bins[BINS];
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        Mass wanted = enough[row];
        Mass before = 0;  // the mass of all keys that are less than those that begin with prefix
        unsigned prefix = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            bins[threadIdx.x] = 0;
            __syncthreads();
            for (int column = threadIdx.x; column < columns; column += THREADS) {
                float value = to_float(from[column]);
                unsigned key = descending(value);
                if (key >> (shift + 8) == prefix)
                    atomicAdd(&bins[key >> shift & 255], mass_of(value, best[row]));
            }
            __syncthreads();
            int bin = 0;
            while (before + bins[bin] < wanted) before += bins[bin++];
            prefix = prefix << 8 | bin;
            __syncthreads();
        }
        if (threadIdx.x == 0) threshold[row] = float_of(prefix), above[row] = before;
    }
}

template <typename T>
static cudaError_t launch(const T* x, const float* best, const int64_t* enough, float* threshold,
                          int64_t* above, int rows, int columns, int blocks, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    top_p_threshold<<<blocks, THREADS, 0, stream>>>(x, best, enough, threshold, above, rows,
                                                    columns);
    return cudaGetLastError();
}

extern "C" cudaError_t top_p_threshold_f32(const float* x, const float* best,
                                           const int64_t* enough, float* threshold,
                                           int64_t* above, int rows, int columns, int blocks,
                                           cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
extern "C" cudaError_t top_p_threshold_f16(const __half* x, const float* best,
                                           const int64_t* enough, float* threshold,
                                           int64_t* above, int rows, int columns, int blocks,
                                           cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
extern "C" cudaError_t top_p_threshold_bf16(const __nv_bfloat16* x, const float* best,
                                            const int64_t* enough, float* threshold,
                                            int64_t* above, int rows, int columns, int blocks,
                                            cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
