// Clusters: thread blocks that live together, and reach each other's shared memory.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "hopper.cuh"

namespace cg = cooperative_groups;

//: exchange
//= (out[:64] == torch.cat([x[32:64].flip(0) + x[32], x[:32].flip(0) + x[0]])).all()
__global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* out) {
    __shared__ float own[32];
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, peer = cluster.block_rank() ^ 1;
    own[t] = x[blockIdx.x * 32 + t];  // @own
    cluster.sync();
    //! race+cluster @read:
    //! race+cluster @read: __syncthreads();
    float* theirs = cluster.map_shared_rank(own, peer);
    //! cluster: float* theirs = cluster.map_shared_rank(own, 2);
    //! out_of_bounds|uninitialized|cluster @read: float* theirs = cluster.map_shared_rank(own, peer) + 40;
    out[blockIdx.x * 32 + t] = theirs[31 - t] + theirs[0];  // @read
    cluster.sync();
    //! race+cluster @read:
    //! race+cluster @read: __syncthreads();
    //! deadlock: if (t != 0 || peer == 1) cluster.sync(); else __syncthreads();
    own[t] = 0;
}
RUN k<<<2, 32, 0, stream>>>(x, out);
    //! refused: k<<<3, 32, 0, stream>>>(x, out);

//: sums
//= out[0] == x[:64].sum()
__global__ void k(const float* x, float* out, int n) {
    extern __shared__ float sum[];
    auto cluster = cg::this_cluster();
    float* first = cluster.map_shared_rank(sum, 0);
    if (threadIdx.x == 0) sum[0] = 0;
    cluster.sync();
    //! race+cluster @add: __syncthreads();
    int i = cluster.block_index().x * 32 + threadIdx.x;
    if (i < n) atomicAdd(first, x[i]);  // @add
    //! race: if (i < n) *first += x[i];
    cluster.sync();
    //! race|cluster @add: __syncthreads();
    if (cluster.thread_rank() == 0) out[0] = sum[0];
}
RUN
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    //! refused @ex: attribute.val.clusterDim = {3, 1, 1};
    //! refused @ex: attribute.val.clusterDim = {16, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = 4;
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = 4;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, k, x, out, 64);  // @ex
END

//: split
//= (out[:64] == torch.cat([x[32:64], x[:32]])).all()
__global__ void __cluster_dims__(2) k(const float* x, float* out) {
    __shared__ float own[32];
    int t = threadIdx.x, b = blockIdx.x;
    own[t] = x[b * 32 + t];
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    //! race @split: asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    //! cluster @wait: ;
    float scale = x[0];
    //! cluster: asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); float scale = x[0];
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // @wait
    //! cluster+uninitialized @split: ;
    uint32_t address = __cvta_generic_to_shared(own + t), there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(b ^ 1));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");  // @split
    out[b * 32 + t] = value * scale;
    cluster_sync();
    //! cluster @split: ;
    if (cg::this_cluster().query_shared_rank(own) != cluster_rank()) out[0] = 0;
}
RUN k<<<2, 32, 0, stream>>>(x, out);

//: handshake
//= (out[:64] == torch.cat([x[32:64] + 2, x[:32] + 2])).all()
__global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* out) {
    __shared__ float box[32];
    __shared__ uint64_t filled[1];
    int t = threadIdx.x, b = blockIdx.x, peer = cluster_rank() ^ 1;
    if (t == 0) mbarrier_init(filled, 32);  // @init
    //! deadlock @wait: if (t == 0) mbarrier_init(filled, 33);
    fence_mbarrier_init();
    cluster_sync();
    //! race|mbarrier|cluster|missing_fence @init @put @arrive: __syncthreads();
    float* there = cg::this_cluster().map_shared_rank(box, peer);
    there[t] = x[b * 32 + t] + 2;  // @put
    mbarrier_arrive_at(filled, peer);  // @arrive
    //! race|cluster|uninitialized|mbarrier @get: if (t == 0) for (int i = 0; i < 32; ++i) mbarrier_arrive_at(filled, peer);
    //! cluster: mbarrier_arrive_at(filled, 2);
    //! race|cluster|uninitialized @get: mbarrier_arrive(filled);
    mbarrier_wait_cluster(filled, 0);  // @wait
    //! race|cluster|uninitialized @get: ;
    //! mbarrier: while (!mbarrier_try_wait(cg::this_cluster().map_shared_rank(filled, peer), 0)) {}
    out[b * 32 + t] = box[t];  // @get
}
RUN k<<<2, 32, 0, stream>>>(x, out);

//: multicast
//= (out[:96].view(2, 3, 16) == (x[:48].view(3, 16) * torch.tensor([1., 2]).view(2, 1, 1))).all()
__global__ void __cluster_dims__(2, 1, 1) k(const __grid_constant__ CUtensorMap map, float* out) {
    __shared__ __align__(128) float row[16];
    __shared__ uint64_t full[1], empty[1];
    int t = threadIdx.x, rank = cluster_rank();
    if (t == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(empty, 2);
        fence_mbarrier_init();
    }
    cluster_sync();
    //! mbarrier|race|cluster|missing_fence|deadlock|transaction_bytes @load @release: __syncthreads();
    for (int i = 0; i < 3; ++i) {
        if (t == 0) {
            mbarrier_arrive_expect(full, 64);
            //! transaction_bytes+deadlock @load @wait: mbarrier_arrive_expect(full, 64 - 32 * rank);
            //! deadlock @wait: mbarrier_arrive_expect(full, 64 + 64 * rank);
            if (rank == 0) {
                mbarrier_wait_cluster(empty, (i & 1) ^ 1);  // @empty
                //! pending_copy @load @read: ;
                tma_load_multicast(row, map, full, 0, i, 3);  // @load
                //! cluster: tma_load_multicast(row, map, full, 0, i, 7);
                //! deadlock @wait: tma_load_multicast(row, map, full, 0, i, 1);
                //! deadlock @wait: tma_load(row, map, full, 0, i);
            }
        }
        mbarrier_wait(full, i & 1);  // @wait
        if (t < 16) out[rank * 48 + i * 16 + t] = row[t] * (rank + 1);  // @read
        __syncwarp();
        if (t == 0) mbarrier_arrive_at(empty, 0);  // @release
        //! pending_copy @load @read: if (t == 0 && rank == 0) { mbarrier_arrive(empty); mbarrier_arrive(empty); }
        //! deadlock @empty @wait: if (t == 0) mbarrier_arrive(empty);
    }
    cluster_sync();
    //! cluster @release: ;
}
RUN
    CUtensorMap map;
    size_t sizes[] = {16, 6}, stride = 16;
    int box[] = {16, 1};
    cudaError_t error = make_tensor_map(&map, x, sizes, &stride, box, Swizzle::NONE);
    if (error != cudaSuccess) return error;
    k<<<2, 32, 0, stream>>>(map, out);
END

//: ranks
//= (out[:8] == 1).all()
__global__ void __cluster_dims__(2, 2, 1) k(float* out) {
    auto cluster = cg::this_cluster();
    uint32_t rank, x, y, cx, size;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(cx));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    bool right = rank == y * 2 + x && rank == cluster.block_rank() && size == 4 &&
                 cluster.dim_blocks().y == 2 && blockIdx.x == cx * 2 + x && blockIdx.y % 2 == y;
    if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = right;
}
RUN k<<<dim3(4, 2), 32, 0, stream>>>(out);
