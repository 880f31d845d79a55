// Flash attention on Hopper, rung 1 of 3: tiles by TMA, products by wgmma, one after another.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh.
//           Weights are rounded to the dtype of v; all sums are float32.
// Shapes    as specified in flash.cuh, float16 or bfloat16; head_dim at most 256, and the blocks of a
//           cache a multiple of 8 keys that divides the tile's or is a multiple of it, else
//           cudaErrorInvalidValue; head_dim and the strides multiples of 8, and q, k, v and out at
//           multiples of 16 bytes, else cudaErrorMisalignedAddress
// Owns      each thread block, one warp group: 64 queries of a head; each thread: half a row's scores
//           of a tile of keys and half a row of the output, where wgmma leaves them
// Moves     q and out once; keys and values once per 64 queries, straight into shared memory
// Compiled  124 registers per thread with head_dim 64, 157 with 128, 206 with 256; none spilled
//           (ptxas 13.0)
// Oracle    attention in float64, in tests/test_flash_kernels.py
// Idea      wgmma reads keys and values where TMA has laid them, so a tile costs a few instructions
//           of one thread. Its accumulators are laid out as mma.sync's are: the scores of 16 keys
//           become the weights that multiply 16 values without leaving the registers. Nothing
//           overlaps yet: while the warp group waits for a tile or computes weights, the tensor cores
//           have nothing to do.
#include "flash/hopper/tiles.cuh"

template <typename T, int DIM, int KEYS>
__global__ void __launch_bounds__(WARP_GROUP)
    flash_tma(const Flash<T> flash, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    T* q_tile = reinterpret_cast<T*>(shared);
    T *k_tile = q_tile + ROWS * DIM, *v_tile = k_tile + KEYS * DIM;
    uint64_t* full = reinterpret_cast<uint64_t*>(v_tile + KEYS * DIM);  // of queries, keys, values
    Work work = find_work(flash, blockIdx.x, ROWS, KEYS);
    if (work.rows <= 0) return;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; ++i) mbarrier_init(&full[i], 1);
        fence_mbarrier_init();
        if (work.tiles > 0) load_queries<T, DIM, 1>(q_tile, maps.q, &full[0], work);
    }
    __syncthreads();

    int thread = threadIdx.x, row = work.sequence.first_row + thread / WARP * 16 + thread % WARP / 4;
    float out[DIM / 2] = {}, scores[KEYS / 2] = {}, factors[2];
    uint32_t weights[KEYS / 16][4];
    Softmax<KEYS> softmax(flash.scale);
    for (int half = 0; half < 2; ++half)
        softmax.seen[half] = work.sequence.seen_by(row + half * 8, flash.causal);
    if (work.tiles > 0) mbarrier_wait(&full[0], 0);
    for (int tile = 0; tile < work.tiles; ++tile) {
        int first = tile * KEYS, left = work.sequence.num_keys - first;
        if (thread < WARP) {
            load_tile<T, DIM, KEYS>(k_tile, maps.k, &full[1], flash, work, first);
            load_tile<T, DIM, KEYS>(v_tile, maps.v, &full[2], flash, work, first);
        }
        mbarrier_wait(&full[1], tile % 2);
        wgmma_fence();
        multiply_keys<T, DIM, KEYS>(scores, q_tile, k_tile);
        wgmma_commit();
        wgmma_wait<0>();
        if (first + KEYS > min(softmax.seen[0], softmax.seen[1])) softmax.mask(scores, first);
        if (softmax.raise(scores, factors)) rescale(out, factors);
        softmax.weigh(scores);
        pack<T, KEYS>(weights, scores);
        mbarrier_wait(&full[2], tile % 2);
        if (left < KEYS) zero_values<T, DIM, KEYS>(v_tile, left, thread, WARP_GROUP);
        __syncthreads();  // the zeros are there
        wgmma_fence();
        add_values<T, DIM, KEYS>(out, weights, v_tile);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all warps are done with the tiles
    }
    store_rows<T, DIM>(flash, work, q_tile, out, softmax, 0, 1, [] {});
}

template <typename T, int DIM, int KEYS>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    constexpr int SHARED = (ROWS + 2 * KEYS) * DIM * 2 + 3 * 8;
    Maps maps;
    cudaError_t error = make_maps(&maps, flash, KEYS);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(flash_tma<T, DIM, KEYS>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (error != cudaSuccess) return error;
    int blocks = most_tiles(flash, ROWS) * flash.heads;
    flash_tma<T, DIM, KEYS><<<blocks, WARP_GROUP, SHARED, stream>>>(flash, maps);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch(Flash<T> flash, cudaStream_t stream) {
    return checked(flash, 256, [=](const Flash<T>& flash) {
        if (flash.head_dim <= 64) return launch<T, 64, 128>(flash, stream);
        if (flash.head_dim <= 128) return launch<T, 128, 128>(flash, stream);
        return launch<T, 256, 64>(flash, stream);
    });
}

extern "C" cudaError_t flash_tma_f16(
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
extern "C" cudaError_t flash_tma_bf16(
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
