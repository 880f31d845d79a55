// Solution of exercise 16.2: 64 sums in a thread's registers.
//
// The tiles of a and b have been written: a_tile[step] is a column of a, 128 elements long, and
// b_tile[step] a row of b. In each of the DEPTH steps a thread takes eight elements of a_tile, four
// from y and four from HALF + y, and eight of b_tile, four from x and four from HALF + x, by load16,
// and adds all 64 products to `sums[down][across][i][j]`: `down` and `i` say which of a's, `across`
// and `j` which of b's. Place both barriers, too: this is in the middle of the loop over k.
//
// Generated from matmul_register_tile in csrc/matmul/register_tile.cu.
// Edit it there, and run `python -m yaie.course build`.

// Matrix product, rung 3 of 5: 8 × 8 elements per thread, in its registers.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float32, float16 or bfloat16
// Owns      each thread block of 256 threads: a tile of 128 × 128 elements of c; each thread: four
//           squares of 4 × 4 elements of it, 64 elements apart
// Moves     for each tile of c, 128 rows of a and 128 columns of b: m × n × k / 64 elements, four
//           times fewer than rung 2. From shared memory a thread reads 16 floats for 64
//           multiplications, where rung 2 reads 2 for each.
// Reaches   44.0 TFLOP/s at 4096³ in float32 on an H100, 0.85 of cuBLAS
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      8 elements of a column of a and 8 of a row of b give 64 products. Shared memory is read
//           8 times less often, 16 bytes at a time, and the multiplications are independent of each
//           other. A thread loads its chunks of the next two tiles into registers before it
//           multiplies these, so they arrive meanwhile. The tile of a is stored transposed, so that a
//           column of it is contiguous; its rows are padded by 4 elements, so that the threads that
//           transpose it write to 32 different banks (in float32; in 16 bits two to each of 16).
#include "common.cuh"

constexpr int TILE = 128;            // rows and columns of c, per thread block
constexpr int THREADS = 256;         // 16 × 16
constexpr int QUAD = 4, HALF = 64;   // the side of a thread's squares, and their distance
constexpr int PADDED = TILE + QUAD;

// The 16-byte chunk of a row that goes to shared memory; its elements from `valid` on are 0.
template <typename T, bool WIDE>
static __device__ __forceinline__ Vec<T> load_chunk(const T* from, int valid) {
    Vec<T> chunk;
    if (WIDE && valid > 0) return load16(from);
    for (int i = 0; i < Vec<T>::SIZE; ++i) chunk[i] = i < valid ? from[i] : from_float<T>(0.0f);
    return chunk;
}

// Store four adjacent elements of a row of c, of which the first `valid` exist.
template <typename T, bool WIDE>
static __device__ __forceinline__ void store_quad(T* to, const float (&sums)[QUAD], int valid) {
    alignas(16) T items[QUAD];
    for (int i = 0; i < QUAD; ++i) items[i] = from_float<T>(sums[i]);
    if (WIDE && valid >= QUAD && sizeof(T) == 4) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4*>(items);
    } else if (WIDE && valid >= QUAD) {
        *reinterpret_cast<uint2*>(to) = *reinterpret_cast<uint2*>(items);
    } else {
        for (int i = 0; i < QUAD; ++i)
            if (i < valid) to[i] = items[i];
    }
}

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_register_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    constexpr int SIZE = Vec<T>::SIZE, DEPTH = 2 * SIZE;  // of k, per tile
    static_assert(TILE * DEPTH == THREADS * SIZE, "a thread loads one chunk of each tile");
    __shared__ alignas(16) float a_tile[DEPTH][PADDED], b_tile[DEPTH][TILE];
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    // Where the thread's first square begins; a warp has 4 rows of 8 squares.
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int x = (warp % 2 * 8 + lane % 8) * QUAD, y = (warp / 2 * 4 + lane / 8) * QUAD;
    float sums[2][2][QUAD][QUAD] = {};  // by square, down and across; then by row and column

    // The chunks that the thread loads: of a row of a, and of a row of b.
    int a_row = threadIdx.x / 2, a_column = threadIdx.x % 2 * SIZE;
    int b_row = threadIdx.x / (TILE / SIZE), b_column = threadIdx.x % (TILE / SIZE) * SIZE;
    Vec<T> a_chunk, b_chunk;
    auto load_chunks = [&](int start) {
        int row = first_row + a_row, column = start + a_column;
        a_chunk = load_chunk<T, WIDE>(a + (size_t)row * k + column, row < m ? k - column : 0);
        row = start + b_row, column = first_column + b_column;
        b_chunk = load_chunk<T, WIDE>(b + (size_t)row * n + column, row < k ? n - column : 0);
    };

    load_chunks(0);
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = 0; i < SIZE; ++i) a_tile[a_column + i][a_row] = to_float(a_chunk[i]);
        for (int i = 0; i < SIZE; i += QUAD) {
            Vec<float> quad;
            for (int j = 0; j < QUAD; ++j) quad[j] = to_float(b_chunk[i + j]);
            store16(&b_tile[b_row][b_column + i], quad);
        }
        load_chunks(start + DEPTH);  // they arrive while these tiles are multiplied
        // exercise 16.2 begin
        __syncthreads();
#pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            Vec<float> a_values[2] = {load16(&a_tile[step][y]), load16(&a_tile[step][HALF + y])};
            Vec<float> b_values[2] = {load16(&b_tile[step][x]), load16(&b_tile[step][HALF + x])};
            for (int down = 0; down < 2; ++down)
                for (int across = 0; across < 2; ++across)
                    for (int i = 0; i < QUAD; ++i)
                        for (int j = 0; j < QUAD; ++j)
                            sums[down][across][i][j] += a_values[down][i] * b_values[across][j];
        }
        __syncthreads();
        // exercise 16.2 end
    }

#pragma unroll  // otherwise the sums are indexed at run time, and so placed in local memory
    for (int down = 0; down < 2; ++down) {
#pragma unroll
        for (int i = 0; i < QUAD; ++i) {
            int row = first_row + down * HALF + y + i;
#pragma unroll
            for (int across = 0; across < 2; ++across) {
                int column = first_column + across * HALF + x;
                store_quad<T, WIDE>(c + (size_t)row * n + column, sums[down][across][i],
                                    row < m ? n - column : 0);
            }
        }
    }
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    bool wide = n % Vec<T>::SIZE == 0 && k % Vec<T>::SIZE == 0 && aligned16(a, b, c);
    if (wide)
        matmul_register_tile<T, true><<<grid, THREADS, 0, stream>>>(a, b, c, m, n, k);
    else
        matmul_register_tile<T, false><<<grid, THREADS, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_register_tile_f32(const float* a, const float* b,
                                                float* c, int m, int n, int k,
                                                cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_register_tile_f16(const __half* a, const __half* b,
                                                __half* c, int m, int n, int k,
                                                cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_register_tile_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                                 __nv_bfloat16* c, int m, int n, int k,
                                                 cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
