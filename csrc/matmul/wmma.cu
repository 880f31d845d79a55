// Matrix product, rung 4 of 5: tensor cores, through the wmma interface of CUDA C++.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 from sm_75 on, bfloat16 from sm_80 on; n and k
//           must be multiples of 8 and all addresses multiples of 16, or the launcher returns
//           cudaErrorMisalignedAddress
// Owns      each thread block of 8 warps: a tile of 128 × 128 elements of c; each warp: 32 × 64 of
//           it, in eight fragments of 16 × 16. CUDA does not specify which elements of a fragment a
//           lane holds.
// Moves     for each tile of c, 128 rows of a and 128 columns of b: m × n × k / 64 elements
// Reaches   97 TFLOP/s at 4096³ in bfloat16 on an H100, 0.13 of cuBLAS
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      one instruction of a warp multiplies tiles of 16 × 16. The tiles of a and b stay in 16
//           bits in shared memory, and their rows are padded by 16 bytes, so that the rows of a
//           fragment lie in different banks. The warps still alternate between waiting for memory
//           and multiplying.
#include <mma.h>

#include <type_traits>

#include "common.cuh"

using namespace nvcuda;

constexpr int TILE = 128, DEPTH = 32;  // rows and columns of c, and of k
constexpr int THREADS = 256;
constexpr int CHUNK = 8;  // elements in 16 bytes
constexpr int FRAGMENT = 16;
constexpr int WARP_M = 32, WARP_N = 64;  // rows and columns of c, per warp
constexpr int DOWN = WARP_M / FRAGMENT, ACROSS = WARP_N / FRAGMENT;

template <typename T>
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <typename T>
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Copy a tile of ROWS × COLUMNS to shared memory, with zeros past the edges of the matrix.
template <int ROWS, int COLUMNS, typename T>
static __device__ __forceinline__ void copy_tile(T (&to)[ROWS][COLUMNS + CHUNK], const T* from,
                                                 int stride, int rows, int columns) {
    constexpr int CHUNKS = COLUMNS / CHUNK;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, column = i % CHUNKS * CHUNK;
        Vec<T> chunk = {};
        if (row < rows && column < columns) chunk = load16(from + (size_t)row * stride + column);
        store16(&to[row][column], chunk);
    }
}

template <typename T>
static __device__ __forceinline__ void multiply(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ alignas(32) T a_tile[TILE][DEPTH + CHUNK], b_tile[DEPTH][TILE + CHUNK];
    __shared__ alignas(32) float staged[THREADS / WARP][FRAGMENT][FRAGMENT];
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int warp_row = warp / (TILE / WARP_N) * WARP_M, warp_column = warp % (TILE / WARP_N) * WARP_N;

    FragmentC sums[DOWN][ACROSS];
    for (int i = 0; i < DOWN; ++i)
        for (int j = 0; j < ACROSS; ++j) wmma::fill_fragment(sums[i][j], 0.0f);

    for (int start = 0; start < k; start += DEPTH) {
        copy_tile<TILE, DEPTH>(a_tile, a + (size_t)first_row * k + start, k, m - first_row,
                               k - start);
        copy_tile<DEPTH, TILE>(b_tile, b + (size_t)start * n + first_column, n, k - start,
                               n - first_column);
        __syncthreads();
        for (int step = 0; step < DEPTH; step += FRAGMENT) {
            FragmentA<T> a_parts[DOWN];
            FragmentB<T> b_parts[ACROSS];
            for (int i = 0; i < DOWN; ++i)
                wmma::load_matrix_sync(a_parts[i], &a_tile[warp_row + i * FRAGMENT][step],
                                       DEPTH + CHUNK);
            for (int j = 0; j < ACROSS; ++j)
                wmma::load_matrix_sync(b_parts[j], &b_tile[step][warp_column + j * FRAGMENT],
                                       TILE + CHUNK);
            for (int i = 0; i < DOWN; ++i)
                for (int j = 0; j < ACROSS; ++j)
                    wmma::mma_sync(sums[i][j], a_parts[i], b_parts[j], sums[i][j]);
        }
        __syncthreads();
    }

    // The layout of a fragment is unspecified, so its elements go through shared memory (float32).
    for (int i = 0; i < DOWN; ++i) {
        for (int j = 0; j < ACROSS; ++j) {
            wmma::store_matrix_sync(&staged[warp][0][0], sums[i][j], FRAGMENT, wmma::mem_row_major);
            __syncwarp();
            int row = lane / 2, column = lane % 2 * CHUNK;
            Vec<T> chunk;
            for (int e = 0; e < CHUNK; ++e)
                chunk[e] = from_float<T>(staged[warp][row][column + e]);
            row += first_row + warp_row + i * FRAGMENT;
            column += first_column + warp_column + j * FRAGMENT;
            if (row < m && column < n) store16(c + (size_t)row * n + column, chunk);
            __syncwarp();
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) matmul_wmma(const T* a, const T* b, T* c, int m, int n,
                                                       int k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    if constexpr (std::is_same<T, __nv_bfloat16>::value)
        __trap();  // these tensor cores do not take bfloat16
    else
#endif
        multiply(a, b, c, m, n, k);
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    if (n % CHUNK || k % CHUNK || !aligned16(a, b, c)) return cudaErrorMisalignedAddress;
    dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    matmul_wmma<<<grid, THREADS, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_wmma_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                       int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_wmma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                        __nv_bfloat16* c, int m, int n, int k,
                                        cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
