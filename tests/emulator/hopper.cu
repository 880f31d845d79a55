// csrc/hopper.cuh: what its functions do with values that tests choose.
#include "hopper.cuh"

// Loads the box at (x, y, z) and writes the bytes of shared memory as they lie there; then stores the
// same box to another tensor.
template <int RANK>
__global__ void move_box(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                         unsigned char* seen, int bytes, int x, int y, int z) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t* barrier = reinterpret_cast<uint64_t*>(shared + bytes);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect(barrier, bytes);
        if constexpr (RANK == 1) tma_load(shared, from, barrier, x);
        if constexpr (RANK == 2) tma_load(shared, from, barrier, x, y);
        if constexpr (RANK == 3) tma_load(shared, from, barrier, x, y, z);
        mbarrier_wait(barrier, 0);
        if constexpr (RANK == 1) tma_store(to, shared, x);
        if constexpr (RANK == 2) tma_store(to, shared, x, y);
        if constexpr (RANK == 3) tma_store(to, shared, x, y, z);
        tma_store_commit();
        tma_store_wait<0>();
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) seen[i] = shared[i];
}

template <int RANK>
cudaError_t move(const __half* from, __half* to, unsigned char* seen, const size_t (&sizes)[RANK],
                 const size_t* strides, const int (&box)[RANK], int swizzle, const int* at,
                 cudaStream_t stream) {
    CUtensorMap maps[2];
    const __half* data[] = {from, to};
    for (int i = 0; i < 2; ++i) {
        auto mode = static_cast<Swizzle>(swizzle);
        cudaError_t error = make_tensor_map(&maps[i], data[i], sizes, strides, box, mode);
        if (error != cudaSuccess) return error;
    }
    int bytes = 2;
    for (int size : box) bytes *= size;
    move_box<RANK><<<1, 64, bytes + 8, stream>>>(maps[0], maps[1], seen, bytes, at[0], at[1], at[2]);
    return cudaGetLastError();
}
extern "C" cudaError_t run_move(const __half* from, __half* to, unsigned char* seen, int rank, int swizzle,
                                int sizes_x, int sizes_y, int sizes_z, int stride_y, int stride_z,
                                int box_x, int box_y, int box_z, int x, int y, int z,
                                cudaStream_t stream) {
    size_t sizes[] = {(size_t)sizes_x, (size_t)sizes_y, (size_t)sizes_z};
    size_t strides[] = {(size_t)stride_y, (size_t)stride_z};
    int at[] = {x, y, z};
    if (rank == 1) return move<1>(from, to, seen, {sizes[0]}, strides, {box_x}, swizzle, at, stream);
    if (rank == 2)
        return move<2>(from, to, seen, {sizes[0], sizes[1]}, strides, {box_x, box_y}, swizzle, at,
                       stream);
    return move<3>(from, to, seen, {sizes[0], sizes[1], sizes[2]}, strides, {box_x, box_y, box_z},
                   swizzle, at, stream);
}

// c = a b for c [64, N]: shared memory gets the bytes of `image`, in which a lies at 0 and b at `b_at`.
// With `fragments` a comes from registers: 4 for each thread.
template <typename T, int N, bool A_MN, bool B_MN>
__global__ void __launch_bounds__(WARP_GROUP, 1)
    multiply(const unsigned char* image, int bytes, int b_at, int a_leading, int a_stride, int b_leading,
             int b_stride, int swizzle, const int* fragments, const float* before, float* c) {
    extern __shared__ __align__(1024) unsigned char shared[];
    for (int i = threadIdx.x; i < bytes / 16; i += WARP_GROUP)
        reinterpret_cast<uint4*>(shared)[i] = reinterpret_cast<const uint4*>(image)[i];
    fence_proxy_async();
    __syncthreads();
    auto mode = static_cast<Swizzle>(swizzle);
    uint64_t a = matrix_descriptor(shared, a_leading, a_stride, mode);
    uint64_t b = advance(matrix_descriptor(shared, b_leading, b_stride, mode), b_at);
    float sums[N / 2];
    for (int i = 0; i < N / 2; ++i) sums[i] = before ? before[threadIdx.x * (N / 2) + i] : 1e30f;
    uint32_t held[4];
    for (int i = 0; i < 4 && fragments; ++i) held[i] = fragments[threadIdx.x * 4 + i];
    wgmma_fence();
    if (fragments)
        wgmma<T, N, B_MN>(sums, held, b, before != nullptr);
    else
        wgmma<T, N, A_MN, B_MN>(sums, a, b, before != nullptr);
    wgmma_commit();
    wgmma_wait<0>();
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < N / 2; ++i)
        c[(row + i / 2 % 2 * 8) * N + column + i / 4 * 8 + i % 2] = sums[i];
}

extern "C" cudaError_t run_multiply(int which, const unsigned char* image, int bytes, int b_at,
                                    int a_leading, int a_stride, int b_leading, int b_stride,
                                    int swizzle, const int* fragments, const float* before, float* c,
                                    cudaStream_t stream) {
    auto run = [=](auto kernel) {
        kernel<<<1, WARP_GROUP, bytes, stream>>>(image, bytes, b_at, a_leading, a_stride, b_leading,
                                                 b_stride, swizzle, fragments, before, c);
        return cudaGetLastError();
    };
    if (which == 0) return run(multiply<__half, 64, false, false>);
    if (which == 1) return run(multiply<__nv_bfloat16, 128, false, true>);
    if (which == 2) return run(multiply<__nv_bfloat16, 192, true, false>);
    return run(multiply<__half, 256, true, true>);
}

// A 16 × 16 tile of 16-bit numbers: loaded by ldmatrix, stored by stmatrix.
__global__ void store_matrices(const short* from, short* to) {
    __shared__ __align__(16) short tile[2][256];
    for (int i = threadIdx.x; i < 256; i += 32) tile[0][i] = from[i];
    __syncwarp();
    uint32_t held[4];
    int row = threadIdx.x % 16, column = threadIdx.x / 16 * 8;
    ldmatrix_x4(held, &tile[0][row * 16 + column]);
    stmatrix_x4(&tile[1][row * 16 + column], held[0], held[1], held[2], held[3]);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) to[i] = tile[1][i];
}
extern "C" cudaError_t run_store_matrices(const short* from, short* to, cudaStream_t stream) {
    store_matrices<<<1, 32, 0, stream>>>(from, to);
    return cudaGetLastError();
}

// Named barriers, and registers that change hands: the first warp group gives, the second takes.
__global__ void __launch_bounds__(2 * WARP_GROUP, 1) hand_over(int* out) {
    __shared__ int slot[WARP_GROUP];
    if (threadIdx.x < WARP_GROUP) {
        decrease_registers<40>();
        for (int i = 0; i < 3; ++i) {
            if (i > 0) named_barrier_sync(2, 2 * WARP_GROUP);
            slot[threadIdx.x] = i * 1000 + threadIdx.x;
            named_barrier_arrive(1, 2 * WARP_GROUP);
        }
    } else {
        increase_registers<256>();
        for (int i = 0; i < 3; ++i) {
            named_barrier_sync(1, 2 * WARP_GROUP);
            out[i * WARP_GROUP + threadIdx.x - WARP_GROUP] = slot[2 * WARP_GROUP - 1 - threadIdx.x];
            if (i < 2) named_barrier_arrive(2, 2 * WARP_GROUP);
        }
    }
}
extern "C" cudaError_t run_hand_over(int* out, cudaStream_t stream) {
    hand_over<<<1, 2 * WARP_GROUP, 0, stream>>>(out);
    return cudaGetLastError();
}

__global__ void architecture(int* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *out = __CUDA_ARCH__;
#endif
}
extern "C" cudaError_t run_architecture(int* out, cudaStream_t stream) {
    architecture<<<1, 1, 0, stream>>>(out);
    return cudaGetLastError();
}
