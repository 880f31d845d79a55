// Exercise 18.5: The gradients of a key and its value.
// Your part begins in line 75 of this file.
//
// A warp owns key `key` of KV head `kv_head`; its rows of k and v are in `k_row` and `v_row`. Go
// over all queries that see the key, in all heads of its group: load the query's row of q and of
// grad_out, compute the weight again, exp(score - lse), and add the query's share to `v_sum` and
// `k_sum`: weight × grad_out, and weight × (grad_out · v - delta) × q. Then store both at `own`, the
// latter times scale. If causal, query i sees the keys 0 to num_k - num_q + i. Row (query, head) of
// q and grad_out has the number query × heads + head, and so do its lse and its delta.
//
// You have
// - `k_row`, `v_row`, `q_row`, `grad_row`, `k_sum`, `v_sum`: rows of a head, spread over the warp;
//   the sums are zero, and the first two are loaded
// - `row.load(from, head_dim)`, `dot(a, b)`: loads a row; returns the dot product to all lanes
// - `sum.add(factor, row)`, `sum.store(to, head_dim, factor)`: adds factor × row; writes factor ×
//   the row from `to` on
// - `q`, `grad_out`: `[num_q, heads, head_dim]`, one row after the other
// - `lse`, `delta`: float `[num_q, heads]`
// - `grad_k`, `grad_v`, `own`: the outputs, and where this key's row begins in both
// - `num_q`, `num_k`, `heads`, `kv_heads`: ints; `heads / kv_heads` query heads share a KV head, and
//   are adjacent
// - `scale`, `causal`, `expf(x)`: a float; a bool; the natural exponential
//
// In a terminal: yaie check 18.5, yaie hint 18.5, yaie reset 18.5.

// Gradients of attention: every weight is recomputed from the log-sum-exp.
//
// Computes  from the gradient dO of the output, with P = exp(q kᵀ · scale - lse) and
//           dS = P ∘ (dO vᵀ - delta):  dQ = dS k · scale,  dK = dSᵀ q · scale,  dV = Pᵀ dO
// Shapes    grad_out, q and grad_q [num_q, heads, head_dim]; k, v, grad_k and grad_v [num_k,
//           kv_heads, head_dim]; all of one dtype: float32, float16 or bfloat16; lse and delta, the
//           sum of grad_out ∘ out over a row, float32 [num_q, heads]. head_dim at most 256, else
//           cudaErrorInvalidValue. Causal queries are the last of the num_k tokens.
// Owns      each warp: in the first kernel a query and its row of grad_q, in the second a key and
//           its rows of grad_k and grad_v; each lane: every 32nd element of a row
#include "flash/rows.cuh"

constexpr int WARPS = 4;  // per thread block, one row each

template <int PARTS, typename T>
__global__ void __launch_bounds__(WARPS* WARP)
    backward_queries(const T* grad_out, const T* q, const T* k, const T* v, const float* lse,
                     const float* delta, T* grad_q, int num_q, int num_k, int heads, int kv_heads,
                     int head_dim, float scale, int causal) {
    int query = blockIdx.x * WARPS + threadIdx.x / WARP, head = blockIdx.y;
    if (query >= num_q) return;  // a whole warp returns, and no barrier follows
    size_t row = (size_t)query * heads + head;
    Row<PARTS> q_row, grad_row, sum, k_row, v_row;
    q_row.load(q + row * head_dim, head_dim);
    grad_row.load(grad_out + row * head_dim, head_dim);
    float row_lse = lse[row], row_delta = delta[row];

    int seen = causal ? num_k - num_q + query + 1 : num_k;  // number of keys; none if negative
    for (int key = 0; key < seen; ++key) {
        size_t from = ((size_t)key * kv_heads + head / (heads / kv_heads)) * head_dim;
        k_row.load(k + from, head_dim);
        v_row.load(v + from, head_dim);
        float weight = expf(dot(q_row, k_row) * scale - row_lse);
        sum.add(weight * (dot(grad_row, v_row) - row_delta), k_row);
    }
    sum.store(grad_q + row * head_dim, head_dim, scale);
}

template <int PARTS, typename T>
__global__ void __launch_bounds__(WARPS* WARP)
    backward_keys(const T* grad_out, const T* q, const T* k, const T* v, const float* lse,
                  const float* delta, T* grad_k, T* grad_v, int num_q, int num_k, int heads,
                  int kv_heads, int head_dim, float scale, int causal) {
    int key = blockIdx.x * WARPS + threadIdx.x / WARP, kv_head = blockIdx.y;
    if (key >= num_k) return;
    size_t own = ((size_t)key * kv_heads + kv_head) * head_dim;
    Row<PARTS> k_row, v_row, k_sum, v_sum, q_row, grad_row;
    k_row.load(k + own, head_dim);
    v_row.load(v + own, head_dim);
    // exercise 18.5 begin
    // your lines
    // exercise 18.5 end
}

template <int PARTS, typename T>
static cudaError_t launch_parts(const T* grad_out, const T* q, const T* k, const T* v,
                                const float* lse, const float* delta, T* grad_q, T* grad_k,
                                T* grad_v, int num_q, int num_k, int heads, int kv_heads,
                                int head_dim, float scale, int causal, cudaStream_t stream) {
    dim3 queries(ceil_div(num_q, WARPS), heads), keys(ceil_div(num_k, WARPS), kv_heads);
    if (num_q > 0)
        backward_queries<PARTS><<<queries, WARPS * WARP, 0, stream>>>(
            grad_out, q, k, v, lse, delta, grad_q, num_q, num_k, heads, kv_heads, head_dim, scale,
            causal);
    if (num_k > 0)
        backward_keys<PARTS><<<keys, WARPS * WARP, 0, stream>>>(
            grad_out, q, k, v, lse, delta, grad_k, grad_v, num_q, num_k, heads, kv_heads, head_dim,
            scale, causal);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch(const T* grad_out, const T* q, const T* k, const T* v, const float* lse,
                          const float* delta, T* grad_q, T* grad_k, T* grad_v, int num_q,
                          int num_k, int heads, int kv_heads, int head_dim, float scale,
                          int causal, cudaStream_t stream) {
    if (heads == 0 || head_dim == 0) return cudaSuccess;
    int parts = ceil_div(head_dim, WARP);
    if (parts > MOST_PARTS) return cudaErrorInvalidValue;
    auto run = parts == 1   ? launch_parts<1, T>
               : parts == 2 ? launch_parts<2, T>
               : parts <= 4 ? launch_parts<4, T>
                            : launch_parts<MOST_PARTS, T>;
    return run(grad_out, q, k, v, lse, delta, grad_q, grad_k, grad_v, num_q, num_k, heads, kv_heads,
               head_dim, scale, causal, stream);
}

extern "C" cudaError_t attention_backward_f32(
    const float* grad_out, const float* q, const float* k, const float* v, const float* lse,
    const float* delta, float* grad_q, float* grad_k, float* grad_v, int num_q, int num_k,
    int heads, int kv_heads, int head_dim, float scale, int causal, cudaStream_t stream) {
    return launch(grad_out, q, k, v, lse, delta, grad_q, grad_k, grad_v, num_q, num_k, heads,
                  kv_heads, head_dim, scale, causal, stream);
}
extern "C" cudaError_t attention_backward_f16(
    const __half* grad_out, const __half* q, const __half* k, const __half* v, const float* lse,
    const float* delta, __half* grad_q, __half* grad_k, __half* grad_v, int num_q, int num_k,
    int heads, int kv_heads, int head_dim, float scale, int causal, cudaStream_t stream) {
    return launch(grad_out, q, k, v, lse, delta, grad_q, grad_k, grad_v, num_q, num_k, heads,
                  kv_heads, head_dim, scale, causal, stream);
}
extern "C" cudaError_t attention_backward_bf16(
    const __nv_bfloat16* grad_out, const __nv_bfloat16* q, const __nv_bfloat16* k,
    const __nv_bfloat16* v, const float* lse, const float* delta, __nv_bfloat16* grad_q,
    __nv_bfloat16* grad_k, __nv_bfloat16* grad_v, int num_q, int num_k, int heads, int kv_heads,
    int head_dim, float scale, int causal, cudaStream_t stream) {
    return launch(grad_out, q, k, v, lse, delta, grad_q, grad_k, grad_v, num_q, num_k, heads,
                  kv_heads, head_dim, scale, causal, stream);
}
