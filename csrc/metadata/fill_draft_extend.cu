// Metadata of draft-extend, rung 2 of 2: everything in one launch; the kernel that the engine uses.
//
// Computes  with ends[b] = lengths[0] + … + lengths[b], for token t, counted over the tokens of all
//           requests, and its request b, the first whose end lies past t:
//           expanded[t] = max(kv[b] + 1 + t - ends[b], 0), the number of keys that it sees
//           cached[t] = min(expanded[t], topk)
// Shapes    lengths [batch], kv [batch], expanded and cached [at least num_tokens], all int32;
//           batch up to MOST_REQUESTS
// Owns      each thread: a token; nothing is written past the end of the last request. Every thread
//           block sums the lengths for itself.
// Moves     4 × (2 × batch + 2 × num_tokens) bytes, and the inputs once more for each further
//           thread block
// Oracle    two loops in Python, in tests/test_draft_metadata.py
// Idea      the bytes are few, so the time goes to launches and latency. The sums need no launch of
//           their own, both inputs are in flight together, and the search stays in shared memory.
//           Counting the requests that end at or before t takes one step per request, but the steps
//           are independent of each other; up to 12 requests it is no slower than bisection.
#include "scan/scan.cuh"

constexpr int THREADS = 256;
constexpr int ITEMS = 4;             // requests per thread and iteration
constexpr int LINEAR_UP_TO = 12;     // requests, measured; with more, bisection
constexpr int MOST_REQUESTS = 4096;  // whose ends fit in 32 KiB of shared memory

struct Request {
    int end;    // tokens of all requests up to and including this one
    int shift;  // token t of this request sees shift + t keys
};

template <bool BISECT>
static __device__ int find_request(const Request* requests, int batch, int t) {
    if (!BISECT) {
        int before = 0;  // requests that end at or before t
#pragma unroll 4
        for (int b = 0; b < batch; ++b) before += requests[b].end <= t;
        return before;
    }
    int low = 0, high = batch - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (requests[middle].end > t) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

template <bool BISECT>
__global__ void fill_draft_extend(const int* lengths, const int* kv, int topk, int* expanded,
                                  int* cached, int batch, int num_tokens) {
    extern __shared__ Request requests[];
    int sum = 0;
    for (int first = 0; first < batch; first += THREADS * ITEMS) {
        int mine = first + threadIdx.x * ITEMS;
        int length[ITEMS], keys[ITEMS], own = 0, total;
        for (int k = 0; k < ITEMS; ++k) {
            length[k] = mine + k < batch ? lengths[mine + k] : 0;
            keys[k] = mine + k < batch ? kv[mine + k] : 0;
        }
        for (int k = 0; k < ITEMS; ++k) own += length[k];
        int end = sum + block_scan(own, total) - own;
        for (int k = 0; k < ITEMS && mine + k < batch; ++k) {
            end += length[k];
            requests[mine + k] = {end, keys[k] + 1 - end};
        }
        sum += total;
    }
    __syncthreads();
    int t = blockIdx.x * THREADS + threadIdx.x;
    if (t >= min(num_tokens, sum)) return;
    int seen = max(requests[find_request<BISECT>(requests, batch, t)].shift + t, 0);
    expanded[t] = seen;
    cached[t] = min(seen, topk);
}

static cudaError_t launch(bool bisect, const int* lengths, const int* kv, int topk, int* expanded,
                          int* cached, int batch, int num_tokens, cudaStream_t stream) {
    if (batch == 0 || num_tokens == 0) return cudaSuccess;
    if (batch > MOST_REQUESTS) return cudaErrorInvalidValue;
    auto kernel = bisect ? fill_draft_extend<true> : fill_draft_extend<false>;
    kernel<<<ceil_div(num_tokens, THREADS), THREADS, batch * sizeof(Request), stream>>>(
        lengths, kv, topk, expanded, cached, batch, num_tokens);
    return cudaGetLastError();
}

extern "C" cudaError_t fill_draft_extend_i32(const int* lengths, const int* kv, int topk,
                                             int* expanded, int* cached, int batch, int num_tokens,
                                             cudaStream_t stream) {
    bool bisect = batch > LINEAR_UP_TO;
    return launch(bisect, lengths, kv, topk, expanded, cached, batch, num_tokens, stream);
}
extern "C" cudaError_t fill_draft_extend_linear_i32(const int* lengths, const int* kv, int topk,
                                                    int* expanded, int* cached, int batch,
                                                    int num_tokens, cudaStream_t stream) {
    return launch(false, lengths, kv, topk, expanded, cached, batch, num_tokens, stream);
}
extern "C" cudaError_t fill_draft_extend_binary_i32(const int* lengths, const int* kv, int topk,
                                                    int* expanded, int* cached, int batch,
                                                    int num_tokens, cudaStream_t stream) {
    return launch(true, lengths, kv, topk, expanded, cached, batch, num_tokens, stream);
}
