// Matrix product on Hopper, rung 8 of 8: tiles as the problem wants them, and a last round split along k.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  c = a b, or a bᵀ if `turned`, summed in float32, rounded once; the same bits in every run
//           with the same number of `workers`
// Shapes    a [m, k], b [k, n] or, turned, [n, k], c [m, n]: float16 or bfloat16; n and k must be
//           multiples of 8 and all addresses multiples of 16, or the launcher returns
//           cudaErrorMisalignedAddress; workspace workers × 128 × 256 float32; tickets [workers]
//           int32, zeros before the first launch and after each; workers at most the GPU's SMs.
//           `way` is −1, or 2 × (a tile's number) + (1 if the last round may be split)
// Owns      each thread block, one per SM: every gridDim.x-th tile of c, then a part along k of a
//           tile of the last round; each of its two consumers: half of a tile's rows or columns
// Moves     for each tile of c, its rows of a and its columns of b; and each part of a tile that is
//           split twice, 8 bytes per element
// Compiled  168 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py and tests/test_matmul_shares.py
// Idea      64 tiles leave half of 132 SMs idle. So if the tiles of the last round fill at most half
//           of the SMs, each is split along k among as many thread blocks as there are (split-K). The
//           consumer that finishes last adds the parts, in the order of k. All thread blocks of a part
//           are at the same k, so a tile of b that four of them need leaves the L2 cache once:
//           equal shares of all steps (stream-K) balance better, but spread over k, and on an H100
//           they were mostly slower than a round that is not full. Parts travel through the L2 cache,
//           so smaller tiles are sometimes better than split ones.
#include "matmul/hopper/tiles.cuh"

constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * WARP_GROUP;
constexpr int GROUP = 16;  // rows of tiles that consecutive tiles share
constexpr int FEWEST = 4;  // steps of a part
constexpr double ADDING = 6000;   // clocks, and one for every 2 elements of a tile
constexpr double MEMORY = 1500;  // bytes per clock
constexpr int MOST_SHARED = 227 * 1024;  // bytes of a thread block

// A tile of 128 rows is halved between the consumers by rows, one of 64 by columns.
template <int ROWS_, int COLUMNS_>
struct Tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
    static constexpr bool BY_ROWS = ROWS == 128;
    static constexpr int N = BY_ROWS ? COLUMNS : COLUMNS / 2;  // columns of a consumer
    static constexpr int BOX = N < LINE ? N : LINE;            // columns of c that TMA stores at a time
    static constexpr int A = ROWS * TILE_K, B = TILE_K * COLUMNS;  // elements
    static constexpr int STAGE = (A + B) * 2;                      // bytes
    static constexpr int PLACE = 64 * (N < 128 ? N : 128);  // elements on their way to c
    static constexpr int REST = CONSUMERS * (PLACE * 2 + 4);
    static constexpr int STAGES = (MOST_SHARED - REST) / (STAGE + 2 * 8);
    static constexpr int SHARED = STAGES * (STAGE + 2 * 8) + REST;
};

// Steps first to last - 1 along k of a tile of c: part `number` of it, or all.
struct Part {
    int tile, number, first, last;
};

// The parts that a thread block computes: whole tiles first; then, of the last `shared` tiles, each in
// `splits` parts, at most one.
struct Work {
    int tiles, shared, splits, steps, at;

    __device__ bool next(Part& part) {
        int unit = at - (tiles - shared);  // thread block in the round that is split
        if (unit >= shared * splits) return false;
        int number = unit < 0 ? 0 : unit / shared;
        if (unit < 0)
            part = {at, 0, 0, steps};
        else
            part = {at - number * shared, number, steps * number / splits,
                    steps * (number + 1) / splits};
        at += gridDim.x;
        return true;
    }
};

// Sum the parts of a tile. Each consumer keeps its 64 × N sums in the workspace and takes a ticket; the
// last one adds them in the order of k. False: it was not the last.
template <int N>
__device__ __forceinline__ bool add_parts(float (&sums)[N / 2], const Work& work, const Part& part,
                                          float4* workspace, int* tickets, int* shared_ticket) {
    int thread = threadIdx.x % WARP_GROUP, group = threadIdx.x / WARP_GROUP, consumer = group - 1;
    int tile = part.tile - (work.tiles - work.shared);
    auto place = [&](int number) {
        int slot = (tile * work.splits + number) * CONSUMERS + consumer;
        return workspace + (size_t)slot * (64 * N / 4) + thread;
    };
#pragma unroll
    for (int i = 0; i < N / 8; ++i)
        place(part.number)[i * WARP_GROUP] =
            make_float4(sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]);
    named_barrier_sync(group, WARP_GROUP);
    int* ticket = tickets + tile * CONSUMERS + consumer;
    if (thread == 0) {
        __threadfence();  // the sums of all are visible before the ticket is taken
        shared_ticket[consumer] = atomicAdd(ticket, 1);
        __threadfence();  // what is read from here on is no older than the ticket
    }
    named_barrier_sync(group, WARP_GROUP);
    if (shared_ticket[consumer] < work.splits - 1) return false;
    if (thread == 0) *ticket = 0;  // for the next launch
    // The first two give the same sum in either order: one of them need not be read again.
    bool from_own = part.number < 2;
    if (!from_own)
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sums[i] = 0.0f;
    for (int other = 0; other < work.splits; ++other) {
        if (from_own && other == part.number) continue;
#pragma unroll
        for (int i = 0; i < N / 8; ++i) {
            float4 more = __ldcg(place(other) + i * WARP_GROUP);
            sums[i * 4] += more.x, sums[i * 4 + 1] += more.y;
            sums[i * 4 + 2] += more.z, sums[i * 4 + 3] += more.w;
        }
    }
    return true;
}

// Store the 64 × N sums of a warp group through `place`, 128 columns at a time, in boxes of 64 × BOX.
template <typename T, int N, int BOX>
__device__ __forceinline__ void store_by_tma(const CUtensorMap& c_map, T* place,
                                             const float (&sums)[N / 2], int row, int column) {
    int thread = threadIdx.x % WARP_GROUP, lane = thread % WARP, barrier = threadIdx.x / WARP_GROUP;
    int line = thread / WARP * 16 + lane % 16;  // whose address this lane passes to stmatrix
#pragma unroll
    for (int first = 0; first < N; first += 128) {
        if (thread == 0) tma_store_wait_read<0>();  // what was here has been read
        named_barrier_sync(barrier, WARP_GROUP);
#pragma unroll
        for (int i = 0; i < 8 && first + i * 16 < N; ++i) {  // 16 columns: two chunks of a line
            const float* held = &sums[first / 2 + i * 8];
            int chunk = (i * 2 + lane / 16) % (BOX / 8) ^ line * BOX / LINE % (BOX / 8);
            stmatrix_x4(place + i * 16 / BOX * 64 * BOX + line * BOX + chunk * 8,
                        pack2<T>(held[0], held[1]), pack2<T>(held[2], held[3]),
                        pack2<T>(held[4], held[5]), pack2<T>(held[6], held[7]));
        }
        fence_proxy_async();
        named_barrier_sync(barrier, WARP_GROUP);
        if (thread > 0) continue;
        for (int i = 0; i < 128 && first + i < N; i += BOX)
            tma_store(c_map, place + i * 64, column + first + i, row);
        tma_store_commit();
    }
}

template <typename T, typename Shape, bool TURNED>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_shares(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                  const __grid_constant__ CUtensorMap c_map, float4* workspace, int* tickets, int m,
                  int n, int k, int shared_tiles, int splits) {
    constexpr int N = Shape::N, STAGES = Shape::STAGES;
    extern __shared__ __align__(1024) unsigned char shared[];
    T* places = reinterpret_cast<T*>(shared + STAGES * Shape::STAGE);
    uint64_t* full = reinterpret_cast<uint64_t*>(places + CONSUMERS * Shape::PLACE);
    uint64_t* empty = full + STAGES;
    int* shared_ticket = reinterpret_cast<int*>(empty + STAGES);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], CONSUMERS * WARP_GROUP);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    int tiles_m = ceil_div(m, Shape::ROWS), tiles_n = ceil_div(n, Shape::COLUMNS), row, column;
    Work work{tiles_m * tiles_n, shared_tiles, splits, ceil_div(k, TILE_K), (int)blockIdx.x};
    Part part;
    int load = 0;  // steps so far: which stage of the ring, and which phase of its barriers
    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one thread is enough
        decrease_registers<40>();
        if (threadIdx.x > 0) return;
        while (work.next(part)) {
            place_tile<Shape::ROWS, Shape::COLUMNS, GROUP>(part.tile, tiles_m, tiles_n, row, column);
            for (int step = part.first; step < part.last; ++step, ++load) {
                int stage = load % STAGES, done = step * TILE_K;
                T* a_tile = reinterpret_cast<T*>(shared + stage * Shape::STAGE);
                T* b_tile = a_tile + Shape::A;
                mbarrier_wait(&empty[stage], load / STAGES % 2 ^ 1);  // the first time immediately
                mbarrier_arrive_expect(&full[stage], Shape::STAGE);
                tma_load(a_tile, a_map, &full[stage], done, row);
                if (TURNED) tma_load(b_tile, b_map, &full[stage], done, column);
                for (int i = 0; i < Shape::COLUMNS && !TURNED; i += LINE)
                    tma_load(b_tile + i * TILE_K, b_map, &full[stage], column + i, done);
            }
        }
        return;
    }
    increase_registers<232>();
    int consumer = threadIdx.x / WARP_GROUP - 1;
    int down = Shape::BY_ROWS ? consumer * 64 : 0, right = Shape::BY_ROWS ? 0 : consumer * N;
    int b_begin = TURNED ? right * LINE : right / LINE * LINE * TILE_K + right % LINE;
    while (work.next(part)) {
        place_tile<Shape::ROWS, Shape::COLUMNS, GROUP>(part.tile, tiles_m, tiles_n, row, column);
        float sums[N / 2] = {};
        for (int step = part.first; step < part.last; ++step, ++load) {
            int stage = load % STAGES;
            const T* a_tile = reinterpret_cast<const T*>(shared + stage * Shape::STAGE);
            const T* b_tile = a_tile + Shape::A;
            mbarrier_wait(&full[stage], load / STAGES % 2);
            wgmma_fence();
            multiply<T, N, !TURNED>(sums, a_tile + down * LINE, b_tile + b_begin);
            wgmma_commit();
            wgmma_wait<1>();  // the product of the step before is complete
            if (step > part.first) mbarrier_arrive(&empty[(load - 1) % STAGES]);
        }
        wgmma_wait<0>();
        mbarrier_arrive(&empty[(load - 1) % STAGES]);
        if (part.last - part.first == work.steps ||
            add_parts<N>(sums, work, part, workspace, tickets, shared_ticket))
            store_by_tma<T, N, Shape::BOX>(c_map, places + consumer * Shape::PLACE, sums, row + down,
                                           column + right);
    }
    if (threadIdx.x % WARP_GROUP == 0) tma_store_wait<0>();
}

// ---------------------------------------------------------------------------- which tile, and when

constexpr int TILES = 5;

template <typename Do>
auto with_tile(int number, Do run) {
    switch (number) {
        case 0: return run(Tile<128, 256>());
        case 1: return run(Tile<128, 192>());
        case 2: return run(Tile<128, 128>());
        case 3: return run(Tile<64, 128>());
        default: return run(Tile<64, 64>());
    }
}

// A tile's shape, how many tiles are split, into how many parts, and what that costs.
struct Way {
    int tile, shared, splits, blocks;
    double clocks;  // of an SM
};

// A step takes the longer of two times. The tensor cores do 2,048 multiply-adds per clock. Shared
// memory moves 128 bytes per clock: TMA writes a stage, and each consumer reads 64 rows of a and its
// columns of b. All steps take at least as long as the matrices come from memory. A round that is split
// is as much shorter, but its parts must be added, which costs more for larger tiles. The constants
// fit the times of all ways on an H100, in notebooks/data/16_hopper_h100.json.
template <typename Shape>
Way way_of(int tile, bool split, int m, int n, int k, int workers) {
    int tiles = ceil_div(m, Shape::ROWS) * ceil_div(n, Shape::COLUMNS), rest = tiles % workers;
    int steps = ceil_div(k, TILE_K), splits = rest ? min(workers / rest, steps / FEWEST) : 0;
    int step = max(Shape::ROWS * Shape::COLUMNS / 32, 2 * (64 + Shape::N) + Shape::STAGE / 128);
    split = split && splits >= 2;
    int last = split ? ceil_div(steps, splits) : rest ? steps : 0;  // steps of the last round
    double moved = ((double)m * k + (double)k * n + (double)m * n) * 2 / MEMORY;
    double clocks = max(((double)(tiles / workers) * steps + last) * step, moved);
    if (!split) return {tile, 0, 1, min(tiles, workers), clocks};
    return {tile, rest, splits, tiles < workers ? rest * splits : workers,
            clocks + ADDING + Shape::ROWS * Shape::COLUMNS / 2};
}

// The way that costs least; the first of several.
inline Way best_way(int m, int n, int k, int workers) {
    Way best = {};
    for (int way = 0; way < 2 * TILES; ++way) {
        Way other = with_tile(way / 2, [=](auto shape) {
            return way_of<decltype(shape)>(way / 2, way % 2, m, n, k, workers);
        });
        if (way == 0 || other.clocks < best.clocks) best = other;
    }
    return best;
}

template <typename T, typename Shape, bool TURNED>
cudaError_t launch_way(const T* a, const T* b, T* c, float* workspace, int* tickets, int m, int n,
                       int k, Way way, cudaStream_t stream) {
    auto launch = [=](CUtensorMap a_map, CUtensorMap b_map) {
        cudaError_t error =
            cudaFuncSetAttribute(matmul_shares<T, Shape, TURNED>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::SHARED);
        if (error != cudaSuccess) return error;
        CUtensorMap c_map;
        size_t stride = n;
        error = make_tensor_map(&c_map, c, {stride, static_cast<size_t>(m)}, &stride,
                                {Shape::BOX, 64},
                                Shape::BOX == LINE ? Swizzle::SPAN_128 : Swizzle::SPAN_64);
        if (error != cudaSuccess) return error;
        matmul_shares<T, Shape, TURNED><<<way.blocks, THREADS, Shape::SHARED, stream>>>(
            a_map, b_map, c_map, reinterpret_cast<float4*>(workspace), tickets, m, n, k, way.shared,
            way.splits);
        return cudaGetLastError();
    };
    return with_maps(a, b, c, m, n, k, Shape::ROWS, stream, launch, TURNED ? Shape::COLUMNS : 0);
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, float* workspace, int* tickets, int m, int n,
                          int k, int turned, int workers, int way, cudaStream_t stream) {
    if (workers < 1 || way >= 2 * TILES) return cudaErrorInvalidValue;
    Way chosen = best_way(m, n, k, workers);
    return with_tile(way < 0 ? chosen.tile : way / 2, [=](auto shape) {
        using Shape = decltype(shape);
        Way last = way < 0 ? chosen : way_of<Shape>(way / 2, way % 2, m, n, k, workers);
        auto launch = turned ? launch_way<T, Shape, true> : launch_way<T, Shape, false>;
        return launch(a, b, c, workspace, tickets, m, n, k, last, stream);
    });
}

extern "C" cudaError_t matmul_shares_f16(const __half* a, const __half* b, __half* c,
                                         float* workspace, int* tickets, int m, int n, int k,
                                         int turned, int workers, int way, cudaStream_t stream) {
    return launch(a, b, c, workspace, tickets, m, n, k, turned, workers, way, stream);
}
extern "C" cudaError_t matmul_shares_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                          __nv_bfloat16* c, float* workspace, int* tickets, int m,
                                          int n, int k, int turned, int workers, int way,
                                          cudaStream_t stream) {
    return launch(a, b, c, workspace, tickets, m, n, k, turned, workers, way, stream);
}
