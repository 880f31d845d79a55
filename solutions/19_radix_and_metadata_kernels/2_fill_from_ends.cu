// Solution of exercise 19.2: Metadata of every token, by bisection.
//
// Give each of num_tokens tokens a thread. ends[b] is how many tokens the requests 0 … b have
// together. Find the request b of token t by bisection: it is the first whose end is greater than t.
// The token sees max(kv[b] + 1 + t - ends[b], 0) keys: that goes to expanded[t], and at most topk to
// cached[t]. num_tokens may be larger than ends[batch - 1]: nothing is written beyond that end.
// Write the launch as well; batch and num_tokens may be any.
//
// Generated from fill_from_ends in csrc/metadata/fill_from_ends.cu.
// Edit it there, and run `python -m yaie.course build`.

// Metadata of draft-extend, rung 1 of 2: a thread a token, the request by binary search.
//
// Computes  for token t of all requests' tokens end to end, with b the request that it is of:
//           expanded[t] = how many keys it sees = max(kv[b] + 1 + t - ends[b], 0)
//           cached[t] = min(expanded[t], topk)
// Shapes    ends [batch], kv [batch], expanded and cached [at least num_tokens], all of int32.
//           ends[b] is how many tokens the requests 0 … b have together; kv[b] how many keys request
//           b has, its own tokens included
// Owns      a thread: a token; nothing beyond the last request's end is written
// Moves     4 × (2 × batch + 2 × num_tokens) bytes
// Oracle    two loops in Python, in tests/test_draft_metadata.py
// Idea      which request a token is of follows from where the requests end: it is the first that
//           ends beyond the token. One that has no tokens ends where the one before it does, and is
//           passed over. Ends rise, so bisection finds it in log2(batch) steps.
#include "common.cuh"

constexpr int THREADS = 256;

__global__ void fill_from_ends(const int* ends, const int* kv, int topk, int* expanded,
                               int* cached, int batch, int num_tokens) {
    // exercise 19.2 begin: token t's request b, the keys that t sees, both outputs
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= num_tokens || t >= ends[batch - 1]) return;
    int low = 0, high = batch - 1;  // the request is one of low … high
    while (low < high) {
        int middle = (low + high) / 2;
        if (ends[middle] > t) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    int seen = max(kv[low] + 1 + t - ends[low], 0);
    expanded[t] = seen;
    cached[t] = min(seen, topk);
    // exercise 19.2 end
}

extern "C" cudaError_t fill_from_ends_i32(const int* ends, const int* kv, int topk, int* expanded,
                                          int* cached, int batch, int num_tokens,
                                          cudaStream_t stream) {
    if (batch == 0 || num_tokens == 0) return cudaSuccess;
    // exercise 19.2 begin: the launch, with a thread for each of num_tokens tokens
    fill_from_ends<<<ceil_div(num_tokens, THREADS), THREADS, 0, stream>>>(ends, kv, topk, expanded,
                                                                          cached, batch, num_tokens);
    // exercise 19.2 end
    return cudaGetLastError();
}
