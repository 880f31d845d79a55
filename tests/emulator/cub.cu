// CUB's collectives of a warp and of a thread block.
#include <cub/cub.cuh>

struct Best {
    float value;
    int index;
    int weight;
};
struct Better {
    __device__ Best operator()(const Best& a, const Best& b) const {
        Best best = a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
        best.weight = a.weight + b.weight;
        return best;
    }
};
struct Running {  // what came before this stretch of the input
    int total;
    __device__ int operator()(int sum) {
        int before = total;
        total += sum;
        return before;
    }
};
struct Larger {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};

// <<<3, 96, 0>>>
__global__ void warps(const int* x, int* sum, int* most, int* inclusive, int* exclusive) {
    using Reduce = cub::WarpReduce<int>;
    using Scan = cub::WarpScan<int, 8>;
    __shared__ typename Reduce::TempStorage reduce[3];
    __shared__ typename Scan::TempStorage scan[12];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
    int total = Reduce(reduce[warp]).Sum(x[i]);
    if (threadIdx.x % 32 == 0) sum[i / 32] = total;
    int largest = Reduce(reduce[warp]).Reduce(x[i], Larger(), 20);
    if (threadIdx.x % 32 == 0) most[i / 32] = largest;
    int all;
    Scan(scan[threadIdx.x / 8]).InclusiveSum(x[i], inclusive[i]);
    Scan(scan[threadIdx.x / 8]).ExclusiveSum(x[i], exclusive[i], all);
    exclusive[i] += all * 1000;
}

template <int THREADS>
__global__ void reduce_all(const float* x, float* out, Best* best, int valid) {
    using Reduce = cub::BlockReduce<float, THREADS>;
    using ArgMax = cub::BlockReduce<Best, THREADS, cub::BLOCK_REDUCE_RAKING>;
    __shared__ union {
        typename Reduce::TempStorage sum;
        typename ArgMax::TempStorage best;
    } temp;
    int i = threadIdx.x;
    float pair[2] = {x[2 * i], x[2 * i + 1]};
    float total = Reduce(temp.sum).Sum(pair);
    __syncthreads();
    float some = Reduce(temp.sum).Reduce(x[i], Larger(), valid);
    __syncthreads();
    Best found = ArgMax(temp.best).Reduce(Best{x[i], i, 1}, Better());
    if (i == 0) {
        out[0] = total;
        out[1] = some;
        *best = found;
    }
}

template <int THREADS>
__global__ void scan_all(const int* x, int* out, int n) {
    using Scan = cub::BlockScan<int, THREADS>;
    using Load = cub::BlockLoad<int, THREADS, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Direct = cub::BlockLoad<int, THREADS, 4>;
    using Store = cub::BlockStore<int, THREADS, 4, THREADS % 32 ? cub::BLOCK_STORE_TRANSPOSE
                                                    : cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using Striped = cub::BlockStore<int, THREADS, 4, cub::BLOCK_STORE_STRIPED>;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename Load::TempStorage load;
    __shared__ typename Store::TempStorage store;
    __shared__ typename Direct::TempStorage direct;
    __shared__ typename Striped::TempStorage striped;
    int i = threadIdx.x, one, total, items[4], sums[4];
    Scan(scan).InclusiveSum(x[i], one);
    out[i] = one;
    __syncthreads();
    Scan(scan).ExclusiveScan(x[i], one, 100, Larger(), total);
    out[THREADS + i] = one;
    out[2 * THREADS + i] = total;
    __syncthreads();
    Load(load).Load(x, items, n, 0);
    Scan(scan).ExclusiveSum(items, sums);
    Store(store).Store(out + 3 * THREADS, sums, n);
    __syncthreads();
    Direct(direct).Load(x, items, n, -1);
    Scan(scan).InclusiveSum(items, items, total);
    Striped(striped).Store(out + 7 * THREADS, items);
    out[11 * THREADS + i] = total;
    Running running = {0};
    for (int stretch = 0; stretch < 2; ++stretch) {
        __syncthreads();
        Scan(scan).ExclusiveSum(x[stretch * THREADS + i], one, running);
        out[(12 + stretch) * THREADS + i] = one;
    }
    int exclusive, before = 0;
    for (int j = 0; j < i; ++j) before = before < x[j] ? x[j] : before;
    __syncthreads();
    Larger larger;
    Scan(scan).ExclusiveScan(x[i], exclusive, 0, larger);
    out[14 * THREADS + i] = exclusive - before;
}

extern "C" cudaError_t reduce_64(const float* x, float* out, void* best, int valid,
                                 cudaStream_t stream) {
    reduce_all<64><<<1, 64, 0, stream>>>(x, out, (Best*)best, valid);
    return cudaGetLastError();
}
extern "C" cudaError_t scan_64(const int* x, int* out, int n, cudaStream_t stream) {
    scan_all<64><<<1, 64, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
extern "C" cudaError_t reduce_80(const float* x, float* out, void* best, int valid,
                                 cudaStream_t stream) {
    reduce_all<80><<<1, 80, 0, stream>>>(x, out, (Best*)best, valid);
    return cudaGetLastError();
}
extern "C" cudaError_t scan_80(const int* x, int* out, int n, cudaStream_t stream) {
    scan_all<80><<<1, 80, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
