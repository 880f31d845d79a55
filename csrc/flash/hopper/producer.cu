// Flash attention on Hopper, rung 2 of 3: a warp group loads, others compute.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh.
//           Weights are rounded to the dtype of v; all sums are float32.
// Shapes    as specified in flash.cuh, float16 or bfloat16; head_dim at most 256, and the blocks of a
//           cache a multiple of 8 keys that divides the tile's or is a multiple of it, else
//           cudaErrorInvalidValue; head_dim and the strides multiples of 8, and q, k, v and out at
//           multiples of 16 bytes, else cudaErrorMisalignedAddress
// Owns      each thread block: 128 queries of a head, 192 if head_dim is at most 64; each of its
//           consumers, which are warp groups: 64 of them
// Moves     q and out once; keys and values once per 128 or 192 queries, straight into shared memory
// Compiled  128 registers per thread with head_dim 64, else 168, none spilled (ptxas 13.0)
// Oracle    attention in float64, in tests/test_flash_kernels.py
// Idea      the producer fills a ring of tiles, of keys and of values alternately, as far ahead as
//           it has stages. Its consumers share each tile, and none of them waits for memory. While one
//           computes weights, another may multiply, if they happen to be out of step.
#include "flash/hopper/tiles.cuh"

// How large everything is, for head_dim padded to DIM.
template <int DIM>
struct Sizes {
    static constexpr int KEYS = DIM <= 128 ? 128 : 64;  // per tile
    static constexpr int CONSUMERS = DIM <= 64 ? 3 : 2, THREADS = (1 + CONSUMERS) * WARP_GROUP;
    static constexpr int HEIGHT = CONSUMERS * ROWS;     // queries per tile
    static constexpr int STAGES = DIM <= 64 ? 6 : 4;    // of the ring
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
    static constexpr int REGISTERS = CONSUMERS == 3 ? 160 : 232;
    static constexpr int Q_TILE = HEIGHT * DIM, KV_TILE = KEYS * DIM;  // elements
    static constexpr int SHARED = (Q_TILE + STAGES * KV_TILE) * 2 + (2 * STAGES + 2) * 8;
};

template <typename T, int DIM>
__global__ void __launch_bounds__(Sizes<DIM>::THREADS, 1)
    flash_producer(const Flash<T> flash, const __grid_constant__ Maps maps) {
    using Size = Sizes<DIM>;
    constexpr int KEYS = Size::KEYS, STAGES = Size::STAGES;
    extern __shared__ __align__(1024) unsigned char shared[];
    T* q_tiles = reinterpret_cast<T*>(shared);
    T* ring = q_tiles + Size::Q_TILE;
    uint64_t* full = reinterpret_cast<uint64_t*>(ring + STAGES * Size::KV_TILE);
    uint64_t *empty = full + STAGES, *q_full = empty + STAGES, *tail = q_full + 1;
    Work work = find_work(flash, blockIdx.x, Size::HEIGHT, KEYS);
    if (work.rows <= 0) return;
    int lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], Size::CONSUMERS * WARP_GROUP / WARP);
        }
        mbarrier_init(q_full, 1);
        mbarrier_init(tail, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one warp is enough
        decrease_registers<Size::PRODUCER_REGISTERS>();
        if (threadIdx.x >= WARP) return;
        if (lane == 0 && work.tiles > 0)
            load_queries<T, DIM, Size::CONSUMERS>(q_tiles, maps.q, q_full, work);
        for (int load = 0; load < 2 * work.tiles; ++load) {  // keys and values alternate
            int stage = load % STAGES, first = load / 2 * KEYS;
            int left = work.sequence.num_keys - first;
            bool cut = load % 2 == 1 && left < KEYS;  // values of which the last become zeros
            T* tile = ring + stage * Size::KV_TILE;
            mbarrier_wait(&empty[stage], load / STAGES % 2 ^ 1);  // the first time immediately
            load_tile<T, DIM, KEYS>(tile, load % 2 ? maps.v : maps.k, cut ? tail : &full[stage],
                                    flash, work, first);
            if (!cut) continue;
            mbarrier_wait(tail, 0);
            zero_values<T, DIM, KEYS>(tile, left, lane, WARP);
            __syncwarp();
            if (lane == 0) mbarrier_arrive(&full[stage]);
        }
        return;
    }
    increase_registers<Size::REGISTERS>();
    int consumer = threadIdx.x / WARP_GROUP - 1, thread = threadIdx.x % WARP_GROUP;
    T* q_tile = q_tiles + consumer * ROWS * DIM;
    float out[DIM / 2] = {}, scores[KEYS / 2] = {}, factors[2];
    uint32_t weights[KEYS / 16][4];
    Softmax<KEYS> softmax(flash.scale);
    int row = work.sequence.first_row + consumer * ROWS + thread / WARP * 16 + lane / 4;
    for (int half = 0; half < 2; ++half)
        softmax.seen[half] = work.sequence.seen_by(row + half * 8, flash.causal);
    if (work.tiles > 0) mbarrier_wait(q_full, 0);
    auto wait_for = [&](int load) {
        mbarrier_wait(&full[load % STAGES], load / STAGES % 2);
        return ring + load % STAGES * Size::KV_TILE;
    };
    auto release = [&](int load) {
        if (lane == 0) mbarrier_arrive(&empty[load % STAGES]);
    };
    for (int tile = 0; tile < work.tiles; ++tile) {
        const T* k_tile = wait_for(tile * 2);
        wgmma_fence();
        multiply_keys<T, DIM, KEYS>(scores, q_tile, k_tile);
        wgmma_commit();
        wgmma_wait<0>();
        release(tile * 2);
        if ((tile + 1) * KEYS > min(softmax.seen[0], softmax.seen[1]))
            softmax.mask(scores, tile * KEYS);
        if (softmax.raise(scores, factors)) rescale(out, factors);
        softmax.weigh(scores);
        pack<T, KEYS>(weights, scores);
        const T* v_tile = wait_for(tile * 2 + 1);
        wgmma_fence();
        add_values<T, DIM, KEYS>(out, weights, v_tile);
        wgmma_commit();
        wgmma_wait<0>();
        release(tile * 2 + 1);
    }
    store_rows<T, DIM>(flash, work, q_tile, out, softmax, consumer * ROWS, 1 + consumer, [] {});
}

template <typename T, int DIM>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    using Size = Sizes<DIM>;
    Maps maps;
    cudaError_t error = make_maps(&maps, flash, Size::KEYS);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(flash_producer<T, DIM>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, Size::SHARED);
    if (error != cudaSuccess) return error;
    int blocks = most_tiles(flash, Size::HEIGHT) * flash.heads;
    flash_producer<T, DIM><<<blocks, Size::THREADS, Size::SHARED, stream>>>(flash, maps);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch(Flash<T> flash, cudaStream_t stream) {
    return checked(flash, 256, [=](const Flash<T>& flash) {
        if (flash.head_dim <= 64) return launch<T, 64>(flash, stream);
        if (flash.head_dim <= 128) return launch<T, 128>(flash, stream);
        return launch<T, 256>(flash, stream);
    });
}

extern "C" cudaError_t flash_producer_f16(
    const __half* q, const __half* k, const __half* v, __half* out, float* lse,
    const int* starts_q, const int* starts_k, const int* block_tables, const int* context_lens,
    int batch, int tokens, int keys, int heads, int kv_heads, int head_dim, int64_t q_stride,
    int64_t k_stride, int64_t v_stride, int block_size, int max_blocks, float scale, int causal,
    cudaStream_t stream) {
    return launch(Flash<__half>{q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens,
                                batch, tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride,
                                v_stride, block_size, max_blocks, scale, causal},
                  stream);
}
extern "C" cudaError_t flash_producer_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out,
    float* lse, const int* starts_q, const int* starts_k, const int* block_tables,
    const int* context_lens, int batch, int tokens, int keys, int heads, int kv_heads,
    int head_dim, int64_t q_stride, int64_t k_stride, int64_t v_stride, int block_size,
    int max_blocks, float scale, int causal, cudaStream_t stream) {
    return launch(Flash<__nv_bfloat16>{q, k, v, out, lse, starts_q, starts_k, block_tables,
                                       context_lens, batch, tokens, keys, heads, kv_heads, head_dim,
                                       q_stride, k_stride, v_stride, block_size, max_blocks, scale,
                                       causal},
                  stream);
}
