// Exercise 26.2: Turns of the consumers.
// Your parts begin in lines 164, 169, 181, 244, 254 and 295 of this file.
//
// The kernel computes the right numbers, but its consumers start products whenever they can. Let
// them take turns: in its turn a consumer starts the two products of a tile and nothing else, then
// it is the next consumer's turn; after the last consumer comes consumer 0, which also has the first
// turn. Write how a consumer waits for its turn (`begin_turn`) and gives it to the next
// (`end_turn`), call both in the loop, and make sure that the first turn is given, and that every
// turn given has been taken when the kernel ends.
//
// You have
// - `consumer`: this thread's consumer, 0 to CONSUMERS - 1, a warp group; `CONSUMERS` is 2 or 3
// - `TURN`: the first of CONSUMERS named barriers, one for each consumer's turn: `TURN + consumer`
// - `named_barrier_sync(id, threads)`: arrives at a named barrier and waits until `threads` threads
//   have arrived, this one included; then the barrier begins again
// - `named_barrier_arrive(id, threads)`: arrives, and does not wait
// - `WARP_GROUP`: threads of a consumer, 128
// - `begin_turn()`, `end_turn(next)`: yours, called by all threads of a consumer; `next` is a
//   consumer
// - `multiply_keys`, `add_values`: start the two products; `wgmma_wait` waits for them
// - `load`: an int, the number of the last tile of keys or values that this consumer has used; for
//   `wait_for` and `release`
//
// In a terminal: yaie check 26.2, yaie hint 26.2, yaie reset 26.2.

// Flash attention on Hopper, rung 3 of 3: weights computed under the products of others.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh.
//           Weights are rounded to the dtype of v; all sums are float32.
// Shapes    as specified in flash.cuh, float16 or bfloat16; head_dim at most 256, and the blocks of a
//           cache a multiple of 8 keys that divides the tile's or is a multiple of it, else
//           cudaErrorInvalidValue; head_dim and the strides multiples of 8, and q, k, v and out at
//           multiples of 16 bytes, else cudaErrorMisalignedAddress
// Owns      each thread block, one per SM: every gridDim.x-th tile of 128 queries of a head, 192 if
//           head_dim is at most 64; each of its consumers, which are warp groups: 64 of them
// Compiled  128 registers per thread with head_dim 64, else 168, none spilled (ptxas 13.0)
#include "flash/hopper/tiles.cuh"
#include "follow.cuh"

// How large everything is, for head_dim padded to DIM. Wide tiles of keys are fewer, and have fewer
// turns, waits and reductions per score; but most blocks of a cache do not divide them.
template <int DIM, bool WIDE>
struct Sizes {
    static constexpr int KEYS = (WIDE ? 160 : 128) / (DIM > 128 ? 2 : 1);  // per tile
    static constexpr int CONSUMERS = DIM <= 64 ? 3 : 2, THREADS = (1 + CONSUMERS) * WARP_GROUP;
    static constexpr int HEIGHT = CONSUMERS * ROWS;     // queries per tile
    static constexpr int STAGES = DIM <= 64 ? 8 : WIDE ? 4 : 5;  // of the ring
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
    static constexpr int REGISTERS = CONSUMERS == 3 ? 160 : 232;
    static constexpr int Q_TILE = HEIGHT * DIM, KV_TILE = KEYS * DIM;  // elements
    static constexpr int Q_STAGES = DIM > 128 ? 1 : 2;  // for queries
    static constexpr int BARRIERS = 2 * STAGES + 3 * Q_STAGES + 1;
    static constexpr int SHARED = (Q_STAGES * Q_TILE + STAGES * KV_TILE) * 2 + BARRIERS * 8 +
                                  Q_STAGES * (int)sizeof(Work);
};

template <typename T, int DIM, bool WIDE, bool TOGETHER>
__global__ void __launch_bounds__(Sizes<DIM, WIDE>::THREADS, 1)
    flash_pingpong(const Flash<T> flash, const __grid_constant__ Maps maps) {
    using Size = Sizes<DIM, WIDE>;
    constexpr int KEYS = Size::KEYS, STAGES = Size::STAGES, CONSUMERS = Size::CONSUMERS;
    constexpr int Q_STAGES = Size::Q_STAGES;
    constexpr int TURN = 1, STORE = TURN + CONSUMERS;  // named barriers, one per consumer each
    extern __shared__ __align__(1024) unsigned char shared[];
    T* q_tiles = reinterpret_cast<T*>(shared);
    T* ring = q_tiles + Q_STAGES * Size::Q_TILE;
    uint64_t* full = reinterpret_cast<uint64_t*>(ring + STAGES * Size::KV_TILE);
    uint64_t *empty = full + STAGES, *q_full = empty + STAGES, *q_empty = q_full + Q_STAGES;
    uint64_t *found = q_empty + Q_STAGES, *tail = found + Q_STAGES;
    Work* works = reinterpret_cast<Work*>(tail + 1);  // of the queries in each stage
    int lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], CONSUMERS * WARP_GROUP / WARP);
        }
        for (int i = 0; i < Q_STAGES; ++i) {
            mbarrier_init(&q_full[i], 1);
            mbarrier_init(&q_empty[i], CONSUMERS * WARP_GROUP + 1);
            mbarrier_init(&found[i], 1);
        }
        mbarrier_init(tail, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    int load = 0;   // tiles of keys and of values so far: load % STAGES is its stage of the ring
    int count = 0;  // pieces of work so far
    if (threadIdx.x < WARP_GROUP) {  // the producer
        decrease_registers<Size::PRODUCER_REGISTERS>();
        // One warp finds the next work, and one of its threads loads the queries. Finding takes long,
        // because it divides and searches global memory; another warp loads keys and values meanwhile.
        if (threadIdx.x / WARP == 1) {
            int tiles = count_tiles(flash, Size::HEIGHT), all = tiles * flash.heads;
            for (int round = 0; round * gridDim.x < all; ++round) {
                // To and fro, so that no thread block always gets the longest of a round.
                int index = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
                if (index >= all) continue;
                Work work = find_work<true>(flash, index, Size::HEIGHT, KEYS, tiles);
                wait_for_last();  // what writes starts and lengths lets no kernel begin early
                int q_stage = count % Q_STAGES;
                if (lane == 0) {
                    mbarrier_wait(&q_empty[q_stage], count / Q_STAGES % 2 ^ 1);  // at first immediately
                    works[q_stage] = work;
                    mbarrier_arrive(&found[q_stage]);
                    if (work.tiles > 0)
                        load_queries<T, DIM, CONSUMERS>(q_tiles + q_stage * Size::Q_TILE, maps.q,
                                                        &q_full[q_stage], work);
                    else
                        mbarrier_arrive(&q_full[q_stage]);
                }
                __syncwarp();
                ++count;
            }
            if (lane > 0) return;
            int q_stage = count % Q_STAGES;
            mbarrier_wait(&q_empty[q_stage], count / Q_STAGES % 2 ^ 1);
            works[q_stage].head = -1;
            mbarrier_arrive(&found[q_stage]);
            mbarrier_arrive(&q_full[q_stage]);
        }
        if (threadIdx.x >= WARP) return;
        wait_for_last();
        int tails = 0;
        for (;; ++count) {
            int q_stage = count % Q_STAGES;
            mbarrier_wait(&found[q_stage], count / Q_STAGES % 2);
            if (works[q_stage].head < 0) return;
            Work work = works[q_stage];  // in registers, so that little is computed per tile
            __syncwarp();                // all lanes have read it
            if (lane == 0) mbarrier_arrive(&q_empty[q_stage]);
            for (int i = 0; i < 2 * work.tiles; ++i, ++load) {
                // In the order of use: k0, k1, v0, k2, v1, ...
                bool values = i > 0 && (i % 2 == 0 || i == 2 * work.tiles - 1);
                int stage = load % STAGES, first = (values ? i - 1 : i + 1) / 2 * KEYS;
                int left = work.sequence.num_keys - first;
                bool cut = values && left < KEYS;  // values of which the last become zeros
                T* tile = ring + stage * Size::KV_TILE;
                mbarrier_wait(&empty[stage], load / STAGES % 2 ^ 1);
                load_tile<T, DIM, KEYS, TOGETHER>(tile, values ? maps.v : maps.k,
                                                  cut ? tail : &full[stage], flash, work, first);
                if (!cut) continue;
                mbarrier_wait(tail, tails++ % 2);
                zero_values<T, DIM, KEYS, TOGETHER>(tile, left, lane, WARP);
                __syncwarp();
                if (lane == 0) mbarrier_arrive(&full[stage]);
            }
        }
    }
    increase_registers<Size::REGISTERS>();
    wait_for_last();
    // Broadcast to the warp, so that ptxas computes descriptors in registers that all lanes share.
    int consumer = __shfl_sync(ALL_LANES, threadIdx.x / WARP_GROUP, 0) - 1;
    int warp = threadIdx.x % WARP_GROUP / WARP;
    auto wait_for = [&](int load) {
        mbarrier_wait(&full[load % STAGES], load / STAGES % 2);
        return ring + load % STAGES * Size::KV_TILE;
    };
    auto release = [&](int load) {
        if (lane == 0) mbarrier_arrive(&empty[load % STAGES]);
    };
    auto begin_turn = [&] {
        // exercise 26.2 begin: wait for this consumer's turn
        // your lines
        // exercise 26.2 end
    };
    auto end_turn = [&](int next) {
        // exercise 26.2 begin: give the turn to consumer `next`
        // your lines
        // exercise 26.2 end
    };
    auto skip = [&] {  // a tile that only other consumers need
        wait_for(load);
        release(load++);
    };
    auto skip_keys = [&] {  // and this consumer's turn with them
        skip();
        begin_turn(), end_turn(consumer + 1 < CONSUMERS ? consumer + 1 : 0);
    };
    // exercise 26.2 begin: who begins
    // your lines
    // exercise 26.2 end
    float scores[KEYS / 2] = {};
    auto wait_for_work = [&](int count) -> const Work& {  // and for its queries
        mbarrier_wait(&q_full[count % Q_STAGES], count / Q_STAGES % 2);
        return works[count % Q_STAGES];
    };
    auto queries = [&](int count) {
        return q_tiles + count % Q_STAGES * Size::Q_TILE + consumer * ROWS * DIM;
    };
    auto begin_scores = [&](int count, int load) {  // with the first keys
        const T* k_tile = wait_for(load);
        wgmma_fence();
        multiply_keys<T, DIM, KEYS, TOGETHER>(scores, queries(count), k_tile);
        wgmma_commit();
    };
    // Tiles of keys up to the last one that this consumer sees. Two consumers compute all: as fast.
    auto own_tiles = [&](const Work& work) {
        int own = min(ROWS, work.rows - consumer * ROWS);
        int last = work.sequence.first_row + consumer * ROWS + own - 1;
        return CONSUMERS == 2 ? work.tiles
               : own <= 0     ? 0
                              : ceil_div(work.sequence.seen_by(last, flash.causal), KEYS);
    };
    bool begun = false;  // whether the first scores of this work are computed already
    for (;; ++count) {
        if (wait_for_work(count).head < 0) break;
        Work work = works[count % Q_STAGES];
        T* q_tile = queries(count);
        float out[DIM / 2] = {}, factors[2];
        uint32_t weights[KEYS / 16][4];
        Softmax<KEYS> softmax(flash.scale);
        int row = work.sequence.first_row + consumer * ROWS + warp * 16 + lane / 4;
        for (int half = 0; half < 2; ++half)
            softmax.seen[half] = work.sequence.seen_by(row + half * 8, flash.causal);
        auto mask = [&](int tile) {
            if ((tile + 1) * KEYS > min(softmax.seen[0], softmax.seen[1]))
                softmax.mask(scores, tile * KEYS);
        };
        int tiles = own_tiles(work), end = load + 2 * work.tiles;
        auto given_back = [&] {
            fence_proxy_async();  // before TMA overwrites the output's place
            mbarrier_arrive(&q_empty[count % Q_STAGES]);
        };
        auto finish = [&] {
            store_rows<T, DIM>(flash, work, q_tile, out, softmax, consumer * ROWS, STORE + consumer,
                               given_back);
        };
        if (tiles > 0) {
            if (!begun) {
                for (float& score : scores) score = 0.0f;
                begin_scores(count, load);
                wgmma_wait<0>();
            }
            begun = false;
            release(load);
            mask(0);
            softmax.raise(scores, factors);  // there is no output yet
            softmax.weigh(scores);
            pack<T, KEYS>(weights, scores);
            for (int tile = 1; tile < tiles; ++tile, load += 2) {
                const T* k_tile = wait_for(load + 1);
                // exercise 26.2 begin: before the products
                // your lines
                // exercise 26.2 end
                wgmma_fence();
                multiply_keys<T, DIM, KEYS, TOGETHER>(scores, q_tile, k_tile);
                wgmma_commit();
                const T* v_tile = wait_for(load + 2);
                wgmma_fence();
                add_values<T, DIM, KEYS, TOGETHER>(out, weights, v_tile);
                wgmma_commit();
                // exercise 26.2 begin: after the last of them
                // your lines
                // exercise 26.2 end
                wgmma_wait<1>();
                release(load + 1);
                mask(tile);
                bool raised = softmax.raise(scores, factors);
                wgmma_wait<0>();
                release(load + 2);
                if (raised) rescale(out, factors);
                softmax.weigh(scores);
                pack<T, KEYS>(weights, scores);
            }
            ++load;
            if (tiles < work.tiles) skip_keys();
            const T* v_tile = wait_for(load);
            wgmma_fence();
            add_values<T, DIM, KEYS, TOGETHER>(out, weights, v_tile);
            wgmma_commit();
            // If tiles are left to skip, the producer needs their stages before it loads more.
            if (Q_STAGES > 1 && tiles == work.tiles) {
                const Work& next = wait_for_work(count + 1);
                begun = next.head >= 0 && own_tiles(next) > 0;
            }
            if (begun) {
                begin_scores(count + 1, load + 1);
                wgmma_wait<1>();
                release(load++);
                finish();
                wgmma_wait<0>();
                continue;
            }
            wgmma_wait<0>();
            release(load++);
        } else if (work.tiles > 0) {
            skip();
        }
        while (load < end - 1) skip_keys(), skip();
        if (load < end) skip();  // the last values
        finish();
    }
    // exercise 26.2 begin: at the end of the kernel
    // your lines
    // exercise 26.2 end
}

template <typename T, int DIM, bool WIDE, bool TOGETHER>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    using Size = Sizes<DIM, WIDE>;
    Maps maps;
    cudaError_t error = make_maps(&maps, flash, Size::KEYS, TOGETHER);
    if (error != cudaSuccess) return error;
    auto kernel = flash_pingpong<T, DIM, WIDE, TOGETHER>;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Size::SHARED);
    if (error != cudaSuccess) return error;
    int device, sms, all = most_tiles(flash, Size::HEIGHT) * flash.heads;  // at most
    error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    int blocks = min(sms, all);
    return launch_behind(kernel, blocks, Size::THREADS, Size::SHARED, stream, flash, maps);
}

template <typename T, int DIM>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    bool cache = flash.block_tables, together = cache && flash.head_dim == DIM;
    bool wide = !cache || Sizes<DIM, true>::KEYS % flash.block_size == 0;
    if (together && wide) return launch<T, DIM, true, true>(flash, stream);
    if (together) return launch<T, DIM, false, true>(flash, stream);
    if (wide) return launch<T, DIM, true, false>(flash, stream);
    return launch<T, DIM, false, false>(flash, stream);
}

template <typename T>
static cudaError_t launch(Flash<T> flash, cudaStream_t stream) {
    return checked(flash, 256, [=](const Flash<T>& flash) {
        if (flash.head_dim <= 64) return launch<T, 64, false, false>(flash, stream);
        if (flash.head_dim <= 128) return launch<T, 128>(flash, stream);
        return launch<T, 256>(flash, stream);
    });
}

extern "C" cudaError_t flash_pingpong_f16(
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
extern "C" cudaError_t flash_pingpong_bf16(
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
