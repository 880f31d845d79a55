// Elements are read wherever the tile ends.
// EXPECT = "write a 0 there, and do not read"
#include "common.cuh"

constexpr int TILE = 32;  // rows and columns of each tile

template <typename T>
__global__ void matmul_shared_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        // Beyond the edges of a and b there are zeros, which add nothing.
        bool in_a = true, in_b = true;
        a_tile[y][x] = in_a ? to_float(a[(size_t)row * k + start + x]) : 0.0f;
        b_tile[y][x] = in_b ? to_float(b[(size_t)(start + y) * n + column]) : 0.0f;
        __syncthreads();  // nobody reads before all have written
        for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads();  // nobody writes the next tiles before all have read these
    }
    if (row < m && column < n) c[(size_t)row * n + column] = from_float<T>(sum);
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    matmul_shared_tile<<<grid, dim3(TILE, TILE), 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_shared_tile_f32(const float* a, const float* b,
                                              float* c, int m, int n, int k,
                                              cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_shared_tile_f16(const __half* a, const __half* b,
                                              __half* c, int m, int n, int k,
                                              cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_shared_tile_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                               __nv_bfloat16* c, int m, int n, int k,
                                               cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
