// Matrix product, rung 1 of 5: each element is computed on its own.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float32, float16 or bfloat16
// Owns      each thread block: 8 rows × 32 columns of c; each warp: 32 adjacent elements of a row
//           of c; each thread: one element
// Moves     for 32 multiply-adds a warp requests 1 element of a and 32 of b: in float32 132 bytes
//           for 64 operations, (m × n / 32) × k × 33 × 4 bytes in all. The caches serve most of it;
//           the minimum is to read a and b once and write c once.
// Reaches   6.0 TFLOP/s at 4096³ in float32 on an H100, 0.12 of cuBLAS
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      none yet, except for coalescing: threadIdx.x runs along a row, so a warp reads one
//           element of a, which all lanes share, and 32 adjacent elements of b.
#include "common.cuh"

constexpr int COLUMNS = 32, ROWS = 8;  // of c, per thread block

template <typename T>
__global__ void matmul_naive(const T* a, const T* b, T* c, int m, int n, int k) {
    int row = blockIdx.y * ROWS + threadIdx.y;
    int column = blockIdx.x * COLUMNS + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum += to_float(a[(size_t)row * k + i]) * to_float(b[(size_t)i * n + column]);
    c[(size_t)row * n + column] = from_float<T>(sum);
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    dim3 grid(ceil_div(n, COLUMNS), ceil_div(m, ROWS));
    matmul_naive<<<grid, dim3(COLUMNS, ROWS), 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_naive_f32(const float* a, const float* b, float* c, int m, int n,
                                        int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_naive_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                        int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_naive_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                         __nv_bfloat16* c, int m, int n, int k,
                                         cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
