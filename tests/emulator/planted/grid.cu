// Cooperative launches: all thread blocks of a grid wait for each other.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

//: phases
//= (out[:96] == torch.arange(1, 97).view(3, 32).flip(0).flatten() + torch.tensor([32., 64, 96]).repeat_interleave(32)).all()
__global__ void k(const float* x, float* out, float* scratch) {
    __shared__ float own[32];
    auto grid = cooperative_groups::this_grid();
    int t = threadIdx.x, b = blockIdx.x, last = gridDim.x - 1;
    float mine;
    own[t] = x[b * 32 + t];
    scratch[b * 32 + t] = own[t];  // @store
    if (b != last) mine = 0;
    grid.sync();
    //! race @store: __syncthreads();
    //! race @store: __threadfence();
    //! deadlock: if (b == 0) return; grid.sync();
    //! out_of_bounds: if (t == 5) scratch[96 + b] = 1; grid.sync();
    out[b * 32 + t] = scratch[(last - b) * 32 + t];  // @out
    grid.sync();  // @second
    //! deadlock: if (t < 16) grid.sync(); else __syncthreads();
    __syncthreads();
    mine = own[31 - t];
    if (grid.thread_rank() < grid.num_threads()) out[b * 32 + t] += mine - x[b * 32 + 31 - t] + own[31];
    if (t == 0) scratch[b] = 0;
}
RUN
    float* scratch;
    cudaMalloc(&scratch, 96 * sizeof(float));
    cudaMemsetAsync(scratch, 0, 96 * sizeof(float), stream);
    void* arguments[] = {&x, &out, &scratch};
    cudaLaunchCooperativeKernel((void*)k, dim3(3), dim3(32), arguments, 0, stream);
    //! refused: cudaLaunchCooperativeKernel((void*)k, dim3(8193), dim3(32), arguments, 0, stream);
    cudaFree(scratch);
END

//: flag
// A fence for the thread block alone orders nothing for another one that runs at the same time.
//= (out[0] == x[1]) & (out[1] == x[1])
__global__ void k(const float* x, float* out, int* flag) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        out[1] = x[1];
        __threadfence();
        //! race @read: __threadfence_block();
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        //! race @read:
        out[0] = out[1];  // @read
    }
}
RUN
    int* flag = (int*)out + 8;
    void* arguments[] = {&x, &out, &flag};
    cudaLaunchCooperativeKernel((void*)k, dim3(2), dim3(32), arguments, 0, stream);
END

//: not_together
//= (out[:64] == x[:64]).all()
__global__ void k(const float* x, float* out) {
    auto grid = cooperative_groups::this_grid();
    if (grid.is_valid()) grid.sync();
    //! deadlock: grid.sync();
    out[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
}
RUN k<<<2, 32, 0, stream>>>(x, out);

//: clusters
//= (out[:64] == x[:64].view(2, 2, 16).sum(1).flip(0).repeat_interleave(2, 0).flatten()).all()
__global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* out, float* scratch) {
    __shared__ float own[16];
    auto grid = cooperative_groups::this_grid();
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x, b = blockIdx.x;
    own[t] = x[b * 16 + t];
    cluster.sync();
    //! race+cluster @read: __syncthreads();
    //! deadlock: if (b != 3) cluster.sync(); else grid.sync();
    float sum = own[t] + cluster.map_shared_rank(own, b % 2 ^ 1)[t];  // @read
    scratch[b * 16 + t] = sum;  // @store
    cluster.barrier_arrive();
    grid.sync();
    //! race @store: __syncthreads();
    cluster.barrier_wait();
    //! cluster: cluster.barrier_arrive();
    out[b * 16 + t] = scratch[(3 - b) * 16 + t];
}
RUN
    float* scratch;
    cudaMalloc(&scratch, 64 * sizeof(float));
    cudaMemsetAsync(scratch, 0, 64 * sizeof(float), stream);
    void* arguments[] = {&x, &out, &scratch};
    cudaLaunchCooperativeKernel((void*)k, dim3(4), dim3(16), arguments, 0, stream);
    //! refused: cudaLaunchCooperativeKernel((void*)k, dim3(3), dim3(16), arguments, 0, stream);
    cudaFree(scratch);
END
