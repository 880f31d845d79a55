// Exercise 20.2: Metadata of every token, by bisection.
// Your parts begin in lines 36 and 45 of this file.
//
// Give each of num_tokens tokens a thread. ends[b] is how many tokens the requests 0 … b have
// together. Find the request b of token t by bisection: it is the first whose end is greater than t.
// The token sees max(kv[b] + 1 + t - ends[b], 0) keys: that goes to expanded[t], and at most topk to
// cached[t]. num_tokens may be larger than ends[batch - 1]: nothing is written beyond that end.
// Write the launch as well; batch and num_tokens may be any.
//
// You have
// - `ends`, `kv`: int32 `[batch]`: tokens of the requests up to this one; keys of the request
// - `expanded`, `cached`: int32, `num_tokens` places at least: the outputs
// - `topk`, `batch`, `num_tokens`: ints; batch and num_tokens are at least 1
// - `THREADS`, `ceil_div(a, b)`: 256 threads per thread block; a / b, rounded up
// - `fill_from_ends<<<thread_blocks, THREADS, 0, stream>>>(ends, kv, topk, expanded, cached, batch,
//   num_tokens)`: the launch
//
// In a terminal: yaie check 20.2, yaie hint 20.2, yaie reset 20.2.

// Metadata of draft-extend, rung 1 of 2: one thread per token, which finds its request by binary
// search.
//
// Computes  for token t, counted over the tokens of all requests, and its request b:
//           expanded[t] = max(kv[b] + 1 + t - ends[b], 0), the number of keys that it sees
//           cached[t] = min(expanded[t], topk)
// Shapes    ends [batch], kv [batch], expanded and cached [at least num_tokens], all int32. ends[b]
//           is the number of tokens of requests 0 … b together; kv[b] is the number of keys of
//           request b, its own tokens included
// Owns      each thread: a token; nothing is written past the end of the last request
#include "common.cuh"

constexpr int THREADS = 256;

__global__ void fill_from_ends(const int* ends, const int* kv, int topk, int* expanded,
                               int* cached, int batch, int num_tokens) {
    // exercise 20.2 begin: the request of token t, the keys that t sees, both outputs
    // your lines
    // exercise 20.2 end
}

extern "C" cudaError_t fill_from_ends_i32(const int* ends, const int* kv, int topk, int* expanded,
                                          int* cached, int batch, int num_tokens,
                                          cudaStream_t stream) {
    if (batch == 0 || num_tokens == 0) return cudaSuccess;
    // exercise 20.2 begin: the launch, with one thread per token
    // your lines
    // exercise 20.2 end
    return cudaGetLastError();
}
