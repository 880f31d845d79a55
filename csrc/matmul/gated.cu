// Matrix product on Hopper with gate and up of a Llama's MLP, and the activation after it.
//
// Needs     sm_90a (wgmma, TMA, thread block clusters)
// Computes  out = silu(x gateᵀ) × (x upᵀ), silu(g) = g / (1 + exp(-g)), in float32, rounded once
// Shapes    x [m, k], weight [2 × n, k], the rows of gate before those of up, out [m, n]: float16
//           or bfloat16; n and k must be multiples of 8 and all addresses multiples of 16, or the
//           launcher returns cudaErrorMisalignedAddress. The kernel that runs before it must not
//           write weight
// Owns      each cluster of two thread blocks: every gridDim.x / 2-th pair of tiles of out, 128 rows
//           by 112 columns each; each of a thread block's two consumers: half of its tile's rows
// Moves     for each pair of tiles: their rows of x once, for both thread blocks; for each tile:
//           its 224 rows of the weights; out once
// Compiled  168 registers per thread, none spilled (ptxas 13.0)
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      a product and `silu_and_mul` in one.
//           - A tile of weights is 8 rows of gate, the same 8 of up, the next 8 of gate, and so on:
//             TMA sees the matrix in four dimensions. So wgmma leaves a gate and its up in
//             registers of one thread, and 2 × m × n products are neither written nor read.
//           - The weights of the first steps are loaded while the kernel before still runs.
//           - 112 columns: the 14,336 that a Llama of 8 billion parameters has are 128 tiles, one
//             round of 132 SMs. Tiles of 128 columns would leave 20 SMs without work.
#include "follow.cuh"
#include "matmul/hopper/tiles.cuh"

constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * WARP_GROUP;
constexpr int BLOCKS = 2;  // of a cluster: tiles side by side
constexpr int GROUP = 16;  // rows of tiles that consecutive tiles share
constexpr int TILE_M = CONSUMERS * 64, TILE_N = 112, N = 2 * TILE_N;  // N: rows of the weights
constexpr int X = TILE_M * TILE_K, STAGE = (X + N * TILE_K) * 2;      // elements, bytes
constexpr int STAGES = 5, SHARED = STAGES * (STAGE + 2 * 8);

template <typename T>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    gated_product(const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ CUtensorMap weight_map, T* out, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + STAGES * STAGE);
    uint64_t* empty = full + STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], BLOCKS * CONSUMERS * WARP_GROUP / WARP);
        }
        fence_mbarrier_init();
    }
    cluster_sync();  // the other thread block's barriers are ready as well
    let_next_begin();

    int rank = cluster_rank(), cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    int tiles_m = ceil_div(m, TILE_M), tiles_n = ceil_div(n, BLOCKS * TILE_N), row, column;
    int steps = ceil_div(k, TILE_K);
    int load = 0;  // steps so far: which stage of the ring, and which phase of its barriers
    auto place = [&](int tile) {
        place_tile<TILE_M, BLOCKS * TILE_N, GROUP>(tile, tiles_m, tiles_n, row, column);
        column += rank * TILE_N;
    };
    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one thread is enough
        decrease_registers<40>();
        if (threadIdx.x > 0) return;
        auto load_weights = [&](int step) {
            int stage = load % STAGES;
            mbarrier_arrive_expect(&full[stage], STAGE);
            tma_load(shared + stage * STAGE + X * 2, weight_map, &full[stage], step * TILE_K, 0, 0,
                     column / 8, 0);
        };
        auto load_x = [&](int stage, int step) {  // half of the rows, for both thread blocks
            tma_load_multicast(shared + stage * STAGE + rank * X * 2 / BLOCKS, x_map, &full[stage],
                               step * TILE_K, row + rank * TILE_M / BLOCKS, (1 << BLOCKS) - 1);
        };
        place(cluster);
        for (; load < min(STAGES, steps); ++load) load_weights(load);
        wait_for_last();  // now x is complete
        for (int step = 0; step < load; ++step) load_x(step, step);
        int step = load;
        for (int tile = cluster; tile < tiles_m * tiles_n; tile += clusters, step = 0) {
            place(tile);
            for (; step < steps; ++step, ++load) {
                int stage = load % STAGES, phase = load / STAGES % 2;
                mbarrier_wait_cluster(&empty[stage], phase ^ 1);
                load_weights(step);
                load_x(stage, step);
            }
        }
        cluster_sync();
        return;
    }
    increase_registers<232>();
    int consumer = threadIdx.x / WARP_GROUP - 1, thread = threadIdx.x % WARP_GROUP;
    int lane = thread % WARP;
    for (int tile = cluster; tile < tiles_m * tiles_n; tile += clusters) {
        place(tile);
        float sums[N / 2] = {};
        for (int step = 0; step < steps; ++step, ++load) {
            int stage = load % STAGES;
            const T* x_tile = reinterpret_cast<const T*>(shared + stage * STAGE);
            mbarrier_wait(&full[stage], load / STAGES % 2);
            wgmma_fence();
            multiply<T, N, false>(sums, x_tile + consumer * 64 * LINE, x_tile + X);
            wgmma_commit();
            wgmma_wait<1>();  // the product of the step before is complete
            if (step > 0) release<BLOCKS>(&empty[(load - 1) % STAGES]);
        }
        wgmma_wait<0>();
        release<BLOCKS>(&empty[(load - 1) % STAGES]);
        row += consumer * 64 + thread / WARP * 16 + lane / 4, column += lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < N / 16; ++i, column += 8) {  // 8 gates, then their ups
            float held[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float gate = sums[i * 8 + j];
                held[j] = __fdividef(gate, 1.0f + __expf(-gate)) * sums[i * 8 + 4 + j];
            }
            if (column >= n) continue;
            T* to = out + (size_t)row * n + column;
            if (row < m) *reinterpret_cast<uint32_t*>(to) = pack2<T>(held[0], held[1]);
            to += (size_t)8 * n;
            if (row + 8 < m) *reinterpret_cast<uint32_t*>(to) = pack2<T>(held[2], held[3]);
        }
    }
    cluster_sync();  // until here the other thread block may write or arrive in this one's memory
}

template <typename T>
static cudaError_t launch(const T* x, const T* weight, T* out, int m, int n, int k,
                          cudaStream_t stream) {
    auto launch = [=](CUtensorMap x_map, CUtensorMap) {
        cudaError_t error = cudaFuncSetAttribute(
            gated_product<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
        if (error != cudaSuccess) return error;
        CUtensorMap weight_map;  // k, 8 rows, gate and up, all such rows
        size_t row = k, rows = n, sizes[] = {row, 8, 2, rows / 8, 1};
        size_t strides[] = {row, rows * row, 8 * row, 2 * rows * row};
        int box[] = {TILE_K, 8, 2, TILE_N / 8, 1};
        error = make_tensor_map(&weight_map, weight, sizes, strides, box, Swizzle::SPAN_128);
        if (error != cudaSuccess) return error;
        int blocks;
        error = one_per_sm(&blocks, BLOCKS * ceil_div(m, TILE_M) * ceil_div(n, BLOCKS * TILE_N));
        if (error != cudaSuccess) return error;
        blocks -= blocks % BLOCKS;  // whole clusters; none can run on a GPU with one SM
        if (blocks == 0) return cudaErrorInvalidConfiguration;
        return launch_behind(gated_product<T>, blocks, THREADS, SHARED, stream, x_map, weight_map,
                             out, m, n, k);
    };
    return with_maps(x, weight, out, m, n, k, TILE_M / BLOCKS, stream, launch, 8);
}

extern "C" cudaError_t gated_product_f16(const __half* x, const __half* weight, __half* out, int m,
                                         int n, int k, cudaStream_t stream) {
    return launch(x, weight, out, m, n, k, stream);
}
extern "C" cudaError_t gated_product_bf16(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                          __nv_bfloat16* out, int m, int n, int k,
                                          cudaStream_t stream) {
    return launch(x, weight, out, m, n, k, stream);
}
