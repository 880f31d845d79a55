// Cooperative groups: lanes that happen to run together, tiles of any size, scans and shared copies.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// One atomic for all lanes that add at the moment.
__device__ int add_together(int* counter) {
    auto active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) first = atomicAdd(counter, active.size());
    return active.shfl(first, 0) + active.thread_rank();
}
__global__ void compact(const int* x, int* counter, int* kept, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] % 3 == 0) kept[add_together(counter)] = x[i];
}

__global__ void branches(int* out) {
    int lane = threadIdx.x % 32;
    out[threadIdx.x] = __popc(__activemask());
    if (lane < 10) {
        out[32 + threadIdx.x] = cg::coalesced_threads().size();
    } else {
        auto group = cg::coalesced_threads();
        out[32 + threadIdx.x] = group.shfl_down(lane, 1) * 100 + group.shfl_up(lane, 2);
        out[64 + threadIdx.x] = cg::reduce(group, lane, cg::plus<int>());
        out[96 + threadIdx.x] = group.ballot(lane % 2) ^ (int)group.match_any(lane / 30);
        out[128 + threadIdx.x] = cg::exclusive_scan(group, lane);
    }
}

__global__ void partitions(int* out) {
    int t = threadIdx.x, same;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto four = cg::tiled_partition<4>(warp);
    cg::coalesced_group third = cg::labeled_partition(warp, t % 3);
    cg::coalesced_group side = cg::binary_partition(warp, t % 32 < 10);
    out[t] = four.meta_group_rank() * 100 + four.meta_group_size();
    out[64 + t] = third.size() * 100 + third.thread_rank();
    out[128 + t] = side.size() * 100 + side.thread_rank();
    out[192 + t] = four.match_any(t / 2 % 2) * 100 + four.match_all(t / 4, same) * 10 + same;
    out[256 + t] = cg::tiled_partition(third, 2).thread_rank();
}

__device__ int sum_of(cg::thread_group group, int* scratch, int value) {
    unsigned rank = group.thread_rank();
    for (unsigned half = group.size() / 2; half > 0; half /= 2) {
        scratch[rank] = value;
        group.sync();
        if (rank < half) value += scratch[rank + half];
        group.sync();
    }
    return value;
}
__global__ void any_group(int* out, int size) {
    __shared__ int scratch[64];
    cg::thread_block block = cg::this_thread_block();
    int total = sum_of(block, scratch, threadIdx.x);
    block.sync();
    cg::thread_group tile = cg::tiled_partition(block, size);
    int part = sum_of(tile, &scratch[threadIdx.x / size * size], threadIdx.x);
    if (tile.thread_rank() == 0) out[threadIdx.x / size] = part;
    if (block.thread_rank() == 0) out[64] = total;
}

__global__ void scans(const int* x, int* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    out[threadIdx.x] = cg::inclusive_scan(tile, x[threadIdx.x]);
    out[64 + threadIdx.x] = cg::inclusive_scan(tile, x[threadIdx.x], cg::greater<int>());
    out[128 + threadIdx.x] = cg::exclusive_scan(tile, x[threadIdx.x]);
}

__global__ void reverse(const int* x, int* out, int n) {
    extern __shared__ int staged[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, staged, n + 1, x, n);  // counts of elements: the smaller one is copied
    cg::wait(block);
    cg::memcpy_async(block, staged, x, n * sizeof(int));
    cg::wait(block);
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = staged[n - 1 - i];
}

extern "C" cudaError_t run_compact(const int* x, int* counter, int* kept, int n, cudaStream_t s) {
    compact<<<(n + 95) / 96, 96, 0, s>>>(x, counter, kept, n);
    return cudaGetLastError();
}
extern "C" cudaError_t run_branches(int* out, cudaStream_t s) {
    branches<<<1, 32, 0, s>>>(out);
    return cudaGetLastError();
}
extern "C" cudaError_t run_partitions(int* out, cudaStream_t s) {
    partitions<<<1, 64, 0, s>>>(out);
    return cudaGetLastError();
}
extern "C" cudaError_t run_any_group(int* out, int size, cudaStream_t s) {
    any_group<<<1, 64, 0, s>>>(out, size);
    return cudaGetLastError();
}
extern "C" cudaError_t run_scans(const int* x, int* out, cudaStream_t s) {
    scans<<<1, 64, 0, s>>>(x, out);
    return cudaGetLastError();
}
extern "C" cudaError_t run_reverse(const int* x, int* out, int n, cudaStream_t s) {
    reverse<<<1, 64, n * sizeof(int), s>>>(x, out, n);
    return cudaGetLastError();
}
