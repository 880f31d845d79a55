// Shared by the rungs of the matrix product on Hopper: tiles in shared memory as TMA leaves them and
// wgmma reads them, the sums in registers, the order of tiles, and what every launcher checks.
//
// A line of a tile is 64 elements, 128 bytes, which SPAN_128 swizzles; 8 lines are 1,024 bytes, in
// which its pattern repeats. A tile of a has one line per row: 64 values of k, K-major. A tile of b
// consists of parts of 64 columns, one after another; a line is 64 columns of one k: MN-major. A tile
// of bᵀ has one line per column of b, as a has per row: K-major.
#pragma once

#include "hopper.cuh"

constexpr int LINE = 64;                    // elements
constexpr int PATTERN = 8 * LINE * 2;       // bytes of 8 lines
constexpr int TILE_K = 64, STEPS = TILE_K / 16;

// sums += a b for 64 rows of a tile of a and the N columns of a tile of b, or of bᵀ if not B_MN.
template <typename T, int N, bool B_MN = true>
__device__ __forceinline__ void multiply(float (&sums)[N / 2], const T* a_tile, const T* b_tile) {
    uint64_t a = matrix_descriptor(a_tile, 0, PATTERN, Swizzle::SPAN_128);
    uint64_t b = matrix_descriptor(b_tile, B_MN ? TILE_K * LINE * 2 : 0, PATTERN, Swizzle::SPAN_128);
    constexpr int B_STEP = B_MN ? 2 * PATTERN : 32;
#pragma unroll
    for (int step = 0; step < STEPS; ++step)  // 16 k: 32 bytes of every line of a, 16 lines of b
        wgmma<T, N, false, B_MN>(sums, advance(a, step * 32), advance(b, step * B_STEP));
}

// Write the 64 × N sums of a warp group to c, from (row, column) on.
template <typename T, int N>
__device__ __forceinline__ void store_sums(T* c, const float (&sums)[N / 2], int row, int column,
                                           int m, int n) {
    int thread = threadIdx.x % WARP_GROUP, lane = thread % WARP;
    row += thread / WARP * 16 + lane / 4, column += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 2; i += 4) {
        if (column + i * 2 >= n) continue;
        T* to = c + (size_t)row * n + column + i * 2;
        if (row < m) *reinterpret_cast<uint32_t*>(to) = pack2<T>(sums[i], sums[i + 1]);
        to += (size_t)8 * n;
        if (row + 8 < m) *reinterpret_cast<uint32_t*>(to) = pack2<T>(sums[i + 2], sums[i + 3]);
    }
}

// A warp has read a stage of a cluster's ring: its first lanes tell the producers, each that of one of the
// BLOCKS thread blocks.
template <int BLOCKS>
__device__ __forceinline__ void release(uint64_t* barrier) {
    if (threadIdx.x % WARP < BLOCKS) mbarrier_arrive_at(barrier, threadIdx.x % WARP);
}

// The tile of c that comes number `index`: down the GROUP rows of tiles of a group, then on to the next
// column.
template <int TILE_M, int TILE_N, int GROUP>
__device__ __forceinline__ void place_tile(int index, int tiles_m, int tiles_n, int& first_row,
                                           int& first_column) {
    int first = index / (GROUP * tiles_n) * GROUP, within = index % (GROUP * tiles_n);
    int height = min(GROUP, tiles_m - first);
    first_row = (first + within % height) * TILE_M;
    first_column = within / height * TILE_N;
}

// How many thread blocks stay on the GPU's SMs, one on each, if there are `tiles` for them.
inline cudaError_t one_per_sm(int* blocks, int tiles) {
    int device, sms;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    *blocks = min(sms, tiles);
    return error;
}

// Checks the arguments, makes tensor maps of a, in boxes of `rows` × 64, and of b, in boxes of
// 64 × 64, and calls launch(a_map, b_map). If `turned` is not 0, b is bᵀ, in boxes of `turned` × 64.
template <typename T, typename Launch>
cudaError_t with_maps(const T* a, const T* b, T* c, int m, int n, int k, int rows,
                      cudaStream_t stream, Launch launch, int turned = 0) {
    if (m == 0 || n == 0) return cudaSuccess;
    if (n % 8 || k % 8 || !aligned16(a, b, c)) return cudaErrorMisalignedAddress;
    if (k == 0) return cudaMemsetAsync(c, 0, (size_t)m * n * sizeof(T), stream);
    CUtensorMap a_map, b_map;
    size_t a_stride = k, b_stride = turned ? k : n, b_rows = turned ? n : k;
    size_t a_sizes[] = {a_stride, static_cast<size_t>(m)}, b_sizes[] = {b_stride, b_rows};
    int a_box[] = {LINE, rows}, b_box[] = {LINE, turned ? turned : TILE_K};
    cudaError_t error = make_tensor_map(&a_map, a, a_sizes, &a_stride, a_box, Swizzle::SPAN_128);
    if (error != cudaSuccess) return error;
    error = make_tensor_map(&b_map, b, b_sizes, &b_stride, b_box, Swizzle::SPAN_128);
    if (error != cudaSuccess) return error;
    return launch(a_map, b_map);
}
