// Takes the first request that ends at or beyond t.
// EXPECT = "Look for the first end that is greater than t"
#include "common.cuh"

constexpr int THREADS = 256;

__global__ void fill_from_ends(const int* ends, const int* kv, int topk, int* expanded,
                               int* cached, int batch, int num_tokens) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= num_tokens || t >= ends[batch - 1]) return;
    int low = 0, high = batch - 1;  // the request is one of low … high
    while (low < high) {
        int middle = (low + high) / 2;
        if (ends[middle] >= t) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    int seen = max(kv[low] + 1 + t - ends[low], 0);
    expanded[t] = seen;
    cached[t] = min(seen, topk);
}

extern "C" cudaError_t fill_from_ends_i32(const int* ends, const int* kv, int topk, int* expanded,
                                          int* cached, int batch, int num_tokens,
                                          cudaStream_t stream) {
    if (batch == 0 || num_tokens == 0) return cudaSuccess;
    fill_from_ends<<<ceil_div(num_tokens, THREADS), THREADS, 0, stream>>>(ends, kv, topk, expanded,
                                                                          cached, batch, num_tokens);
    return cudaGetLastError();
}
