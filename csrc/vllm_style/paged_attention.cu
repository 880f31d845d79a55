// Paged attention in two versions, in the dialect of vLLM's csrc/attention: a kernel to be read.
// The text is the course's own; structure, names and layouts are those that you meet there.
//
// Computes  out[s, h] = softmax(scale × q[s, h] · K) V over the seq_lens[s] tokens of sequence s;
//           zeros for a sequence of no tokens
// Shapes    q, out [num_seqs, num_heads, 64]; the caches in blocks of 16 tokens, as the comments on
//           the parameters say; workspace of version 2: exp_sums, max_logits and tmp_out, for at
//           most max_num_partitions of 512 tokens; float32 or float16
// Owns      what a thread owns is asked in exercise 29.4
// Moves     keys and values of a context once per query head
// Oracle    attention in float64, in tests/test_reading.py
// Idea      version 1 gives a sequence and a head to one thread block. What does version 2 add?
#include <float.h>

#include "common.cuh"

#define WARP_SIZE 32
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define DIVIDE_ROUND_UP(a, b) (((a) + (b)-1) / (b))

constexpr int HEAD_SIZE = 64, BLOCK_SIZE = 16, NUM_THREADS = 128, PARTITION_SIZE = 512;

namespace vllm_style {

template <typename scalar_t, int SIZE>
struct alignas(SIZE * sizeof(scalar_t)) Packed {
    scalar_t items[SIZE];
};

template <typename scalar_t, int SIZE>
__device__ float dot(const Packed<scalar_t, SIZE>& a, const Packed<scalar_t, SIZE>& b) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < SIZE; i++) sum += to_float(a.items[i]) * to_float(b.items[i]);
    return sum;
}

template <int NUM_WARPS>
__device__ float block_sum(float* red_smem, float sum) {
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    for (int mask = WARP_SIZE / 2; mask >= 1; mask /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, mask);
    if (lane == 0) red_smem[warp] = sum;
    __syncthreads();
    sum = lane < NUM_WARPS ? red_smem[lane] : 0.f;
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, mask);
    return __shfl_sync(ALL_LANES, sum, 0);
}

// Grid: (num_heads, num_seqs, max_num_partitions)
template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS,
          int PARTITION_SIZE = 0>  // zero: no partitions
__device__ void paged_attention_kernel(
    float* __restrict__ exp_sums,          // [num_seqs, num_heads, max_num_partitions]
    float* __restrict__ max_logits,        // [num_seqs, num_heads, max_num_partitions]
    scalar_t* __restrict__ out,            // [num_seqs, num_heads, max_num_partitions, head_size]
    const scalar_t* __restrict__ q,        // [num_seqs, num_heads, head_size]
    const scalar_t* __restrict__ k_cache,  // [num_blocks, num_kv_heads, head_size/x, block_size, x]
    const scalar_t* __restrict__ v_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    int num_kv_heads, float scale,
    const int* __restrict__ block_tables,  // [num_seqs, max_num_blocks_per_seq]
    const int* __restrict__ seq_lens,      // [num_seqs]
    int max_num_blocks_per_seq) {
    constexpr bool USE_PARTITIONING = PARTITION_SIZE > 0;
    const int seq_idx = blockIdx.y, partition_idx = blockIdx.z, max_num_partitions = gridDim.z;
    const int seq_len = seq_lens[seq_idx];
    if (USE_PARTITIONING && partition_idx * PARTITION_SIZE >= seq_len) return;

    const int num_seq_blocks = DIVIDE_ROUND_UP(seq_len, BLOCK_SIZE);
    const int num_blocks_per_partition =
        USE_PARTITIONING ? PARTITION_SIZE / BLOCK_SIZE : num_seq_blocks;
    const int start_block_idx = USE_PARTITIONING ? partition_idx * num_blocks_per_partition : 0;
    const int end_block_idx = MIN(start_block_idx + num_blocks_per_partition, num_seq_blocks);
    const int start_token_idx = start_block_idx * BLOCK_SIZE;
    const int end_token_idx = MIN(end_block_idx * BLOCK_SIZE, seq_len);
    const int num_tokens = end_token_idx - start_token_idx;

    constexpr int THREAD_GROUP_SIZE = MAX(WARP_SIZE / BLOCK_SIZE, 1);
    constexpr int NUM_THREAD_GROUPS = NUM_THREADS / THREAD_GROUP_SIZE;
    constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
    constexpr int VEC_SIZE = 16 / (THREAD_GROUP_SIZE * sizeof(scalar_t));
    constexpr int NUM_VECS_PER_THREAD = HEAD_SIZE / THREAD_GROUP_SIZE / VEC_SIZE;
    constexpr int x = 16 / sizeof(scalar_t);
    using K_vec = Packed<scalar_t, VEC_SIZE>;
    const int thread_idx = threadIdx.x;
    const int warp_idx = thread_idx / WARP_SIZE, lane = thread_idx % WARP_SIZE;
    const int thread_group_idx = thread_idx / THREAD_GROUP_SIZE;
    const int thread_group_offset = thread_idx % THREAD_GROUP_SIZE;
    const int head_idx = blockIdx.x, num_heads = gridDim.x;
    const int kv_head_idx = head_idx / (num_heads / num_kv_heads);
    const int64_t row = (int64_t)seq_idx * num_heads + head_idx;

    __shared__ K_vec q_vecs[THREAD_GROUP_SIZE][NUM_VECS_PER_THREAD];
    const K_vec* q_ptr = reinterpret_cast<const K_vec*>(q + row * HEAD_SIZE);
    for (int i = thread_group_idx; i < NUM_VECS_PER_THREAD; i += NUM_THREAD_GROUPS)
        q_vecs[thread_group_offset][i] = q_ptr[thread_group_offset + i * THREAD_GROUP_SIZE];
    __syncthreads();

    extern __shared__ __align__(16) char shared_mem[];
    float* logits = reinterpret_cast<float*>(shared_mem);  // [num_tokens]
    __shared__ float red_smem[2 * NUM_WARPS];
    float qk_max = -FLT_MAX;

    const int* block_table = block_tables + (int64_t)seq_idx * max_num_blocks_per_seq;
    for (int block_idx = start_block_idx + warp_idx; block_idx < end_block_idx;
         block_idx += NUM_WARPS) {
        const int64_t physical_block_number = block_table[block_idx];
        const int physical_block_offset = thread_group_idx % BLOCK_SIZE;
        const int token_idx = block_idx * BLOCK_SIZE + physical_block_offset;
        const scalar_t* k_ptr =
            k_cache + (physical_block_number * num_kv_heads + kv_head_idx) * HEAD_SIZE * BLOCK_SIZE;
        float qk = 0.f;
#pragma unroll
        for (int j = 0; j < NUM_VECS_PER_THREAD; j++) {
            const int first = (thread_group_offset + j * THREAD_GROUP_SIZE) * VEC_SIZE;
            const int place = first / x * BLOCK_SIZE * x + physical_block_offset * x + first % x;
            const K_vec k_vec = *reinterpret_cast<const K_vec*>(k_ptr + place);
            qk += dot(q_vecs[thread_group_offset][j], k_vec);
        }
        for (int mask = THREAD_GROUP_SIZE / 2; mask >= 1; mask /= 2)
            qk += __shfl_xor_sync(ALL_LANES, qk, mask);
        if (thread_group_offset == 0 && token_idx < seq_len) {
            logits[token_idx - start_token_idx] = scale * qk;
            qk_max = fmaxf(qk_max, scale * qk);
        }
    }

    for (int mask = WARP_SIZE / 2; mask >= THREAD_GROUP_SIZE; mask /= 2)
        qk_max = fmaxf(qk_max, __shfl_xor_sync(ALL_LANES, qk_max, mask));
    if (lane == 0) red_smem[warp_idx] = qk_max;
    __syncthreads();
    qk_max = lane < NUM_WARPS ? red_smem[lane] : -FLT_MAX;
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2)
        qk_max = fmaxf(qk_max, __shfl_xor_sync(ALL_LANES, qk_max, mask));
    qk_max = __shfl_sync(ALL_LANES, qk_max, 0);

    float exp_sum = 0.f;
    for (int i = thread_idx; i < num_tokens; i += NUM_THREADS) {
        const float val = __expf(logits[i] - qk_max);
        logits[i] = val;
        exp_sum += val;
    }
    exp_sum = block_sum<NUM_WARPS>(&red_smem[NUM_WARPS], exp_sum);
    const float inv_sum = __fdividef(1.f, exp_sum + 1e-6f);
    for (int i = thread_idx; i < num_tokens; i += NUM_THREADS) logits[i] *= inv_sum;
    __syncthreads();

    if (USE_PARTITIONING && thread_idx == 0) {
        max_logits[row * max_num_partitions + partition_idx] = qk_max;
        exp_sums[row * max_num_partitions + partition_idx] = exp_sum;
    }

    constexpr int V_VEC_SIZE = MIN(16 / (int)sizeof(scalar_t), BLOCK_SIZE);
    constexpr int NUM_V_VECS_PER_ROW = BLOCK_SIZE / V_VEC_SIZE;
    constexpr int NUM_ROWS_PER_ITER = WARP_SIZE / NUM_V_VECS_PER_ROW;
    constexpr int NUM_ROWS_PER_THREAD = DIVIDE_ROUND_UP(HEAD_SIZE, NUM_ROWS_PER_ITER);
    using V_vec = Packed<scalar_t, V_VEC_SIZE>;
    float accs[NUM_ROWS_PER_THREAD] = {};
    for (int block_idx = start_block_idx + warp_idx; block_idx < end_block_idx;
         block_idx += NUM_WARPS) {
        const int64_t physical_block_number = block_table[block_idx];
        const int physical_block_offset = lane % NUM_V_VECS_PER_ROW * V_VEC_SIZE;
        const int token_idx = block_idx * BLOCK_SIZE + physical_block_offset;
        const scalar_t* v_ptr =
            v_cache + (physical_block_number * num_kv_heads + kv_head_idx) * HEAD_SIZE * BLOCK_SIZE;
#pragma unroll
        for (int i = 0; i < NUM_ROWS_PER_THREAD; i++) {
            const int row_idx = lane / NUM_V_VECS_PER_ROW + i * NUM_ROWS_PER_ITER;
            const V_vec v_vec = *reinterpret_cast<const V_vec*>(v_ptr + row_idx * BLOCK_SIZE +
                                                                physical_block_offset);
#pragma unroll
            for (int j = 0; j < V_VEC_SIZE; j++)
                if (token_idx + j < seq_len)
                    accs[i] += logits[token_idx + j - start_token_idx] * to_float(v_vec.items[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < NUM_ROWS_PER_THREAD; i++)
        for (int mask = NUM_V_VECS_PER_ROW / 2; mask >= 1; mask /= 2)
            accs[i] += __shfl_xor_sync(ALL_LANES, accs[i], mask);
    __syncthreads();  // logits are read for the last time: their memory is used again

    float* out_smem = reinterpret_cast<float*>(shared_mem);  // [NUM_WARPS, HEAD_SIZE]
#pragma unroll
    for (int i = 0; i < NUM_ROWS_PER_THREAD; i++)
        if (lane % NUM_V_VECS_PER_ROW == 0)
            out_smem[warp_idx * HEAD_SIZE + lane / NUM_V_VECS_PER_ROW + i * NUM_ROWS_PER_ITER] =
                accs[i];
    __syncthreads();
    scalar_t* out_ptr = out + (row * max_num_partitions + partition_idx) * HEAD_SIZE;
    for (int i = thread_idx; i < HEAD_SIZE; i += NUM_THREADS) {
        float acc = 0.f;
        for (int warp = 0; warp < NUM_WARPS; warp++) acc += out_smem[warp * HEAD_SIZE + i];
        out_ptr[i] = from_float<scalar_t>(acc);
    }
}

// Grid: (num_heads, num_seqs, 1)
template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS>
__global__ void paged_attention_v1_kernel(scalar_t* out, const scalar_t* q, const scalar_t* k_cache,
                                          const scalar_t* v_cache, int num_kv_heads, float scale,
                                          const int* block_tables, const int* seq_lens,
                                          int max_num_blocks_per_seq) {
    paged_attention_kernel<scalar_t, HEAD_SIZE, BLOCK_SIZE, NUM_THREADS>(
        nullptr, nullptr, out, q, k_cache, v_cache, num_kv_heads, scale, block_tables, seq_lens,
        max_num_blocks_per_seq);
}

// Grid: (num_heads, num_seqs, max_num_partitions)
template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS, int PARTITION_SIZE>
__global__ void paged_attention_v2_kernel(float* exp_sums, float* max_logits, scalar_t* tmp_out,
                                          const scalar_t* q, const scalar_t* k_cache,
                                          const scalar_t* v_cache, int num_kv_heads, float scale,
                                          const int* block_tables, const int* seq_lens,
                                          int max_num_blocks_per_seq) {
    paged_attention_kernel<scalar_t, HEAD_SIZE, BLOCK_SIZE, NUM_THREADS, PARTITION_SIZE>(
        exp_sums, max_logits, tmp_out, q, k_cache, v_cache, num_kv_heads, scale, block_tables,
        seq_lens, max_num_blocks_per_seq);
}

// Grid: (num_heads, num_seqs)
template <typename scalar_t, int HEAD_SIZE, int NUM_THREADS, int PARTITION_SIZE>
__global__ void paged_attention_v2_reduce_kernel(
    scalar_t* __restrict__ out,            // [num_seqs, num_heads, head_size]
    const float* __restrict__ exp_sums,    // [num_seqs, num_heads, max_num_partitions]
    const float* __restrict__ max_logits,  // [num_seqs, num_heads, max_num_partitions]
    const scalar_t* __restrict__ tmp_out,  // [num_seqs, num_heads, max_num_partitions, head_size]
    const int* __restrict__ seq_lens, int max_num_partitions) {
    const int64_t row = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    const int num_partitions = DIVIDE_ROUND_UP(seq_lens[blockIdx.y], PARTITION_SIZE);
    const float* max_logits_ptr = max_logits + row * max_num_partitions;
    const float* exp_sums_ptr = exp_sums + row * max_num_partitions;

    float max_logit = -FLT_MAX, global_exp_sum = 0.f;
    for (int i = 0; i < num_partitions; i++) max_logit = fmaxf(max_logit, max_logits_ptr[i]);
    for (int i = 0; i < num_partitions; i++)
        global_exp_sum += exp_sums_ptr[i] * expf(max_logits_ptr[i] - max_logit);
    const float inv_global_exp_sum = __fdividef(1.0f, global_exp_sum + 1e-6f);

    for (int i = threadIdx.x; i < HEAD_SIZE; i += NUM_THREADS) {
        float acc = 0.f;
        for (int j = 0; j < num_partitions; j++) {
            const float rescaled_exp_sum = exp_sums_ptr[j] * expf(max_logits_ptr[j] - max_logit);
            acc += to_float(tmp_out[(row * max_num_partitions + j) * HEAD_SIZE + i]) *
                   rescaled_exp_sum * inv_global_exp_sum;
        }
        out[row * HEAD_SIZE + i] = from_float<scalar_t>(acc);
    }
}

}  // namespace vllm_style

using namespace vllm_style;

template <typename scalar_t>
static cudaError_t launch_v1(scalar_t* out, const scalar_t* q, const scalar_t* k_cache,
                             const scalar_t* v_cache, int num_seqs, int num_heads, int num_kv_heads,
                             float scale, const int* block_tables, const int* seq_lens,
                             int max_num_blocks_per_seq, int max_seq_len, cudaStream_t stream) {
    if (num_seqs == 0) return cudaSuccess;
    int logits_size = DIVIDE_ROUND_UP(max_seq_len, BLOCK_SIZE) * BLOCK_SIZE * (int)sizeof(float);
    int outputs_size = NUM_THREADS / WARP_SIZE * HEAD_SIZE * (int)sizeof(float);
    int shared_mem_size = MAX(logits_size, outputs_size);
    auto kernel = paged_attention_v1_kernel<scalar_t, HEAD_SIZE, BLOCK_SIZE, NUM_THREADS>;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             shared_mem_size);
    if (error != cudaSuccess) return error;
    kernel<<<dim3(num_heads, num_seqs, 1), NUM_THREADS, shared_mem_size, stream>>>(
        out, q, k_cache, v_cache, num_kv_heads, scale, block_tables, seq_lens,
        max_num_blocks_per_seq);
    return cudaGetLastError();
}

template <typename scalar_t>
static cudaError_t launch_v2(scalar_t* out, float* exp_sums, float* max_logits, scalar_t* tmp_out,
                             const scalar_t* q, const scalar_t* k_cache, const scalar_t* v_cache,
                             int num_seqs, int num_heads, int num_kv_heads, float scale,
                             const int* block_tables, const int* seq_lens,
                             int max_num_blocks_per_seq, int max_seq_len, cudaStream_t stream) {
    if (num_seqs == 0) return cudaSuccess;
    int max_num_partitions = MAX(DIVIDE_ROUND_UP(max_seq_len, PARTITION_SIZE), 1);
    int shared_mem_size = MAX(PARTITION_SIZE, NUM_THREADS / WARP_SIZE * HEAD_SIZE) * sizeof(float);
    paged_attention_v2_kernel<scalar_t, HEAD_SIZE, BLOCK_SIZE, NUM_THREADS, PARTITION_SIZE>
        <<<dim3(num_heads, num_seqs, max_num_partitions), NUM_THREADS, shared_mem_size, stream>>>(
            exp_sums, max_logits, tmp_out, q, k_cache, v_cache, num_kv_heads, scale, block_tables,
            seq_lens, max_num_blocks_per_seq);
    paged_attention_v2_reduce_kernel<scalar_t, HEAD_SIZE, NUM_THREADS, PARTITION_SIZE>
        <<<dim3(num_heads, num_seqs), NUM_THREADS, 0, stream>>>(out, exp_sums, max_logits, tmp_out,
                                                                seq_lens, max_num_partitions);
    return cudaGetLastError();
}

extern "C" cudaError_t paged_attention_v1_f32(float* out, const float* q, const float* k_cache,
                                              const float* v_cache, int num_seqs, int num_heads,
                                              int num_kv_heads, float scale,
                                              const int* block_tables, const int* seq_lens,
                                              int max_num_blocks_per_seq, int max_seq_len,
                                              cudaStream_t stream) {
    return launch_v1(out, q, k_cache, v_cache, num_seqs, num_heads, num_kv_heads, scale,
                     block_tables, seq_lens, max_num_blocks_per_seq, max_seq_len, stream);
}
extern "C" cudaError_t paged_attention_v1_f16(__half* out, const __half* q, const __half* k_cache,
                                              const __half* v_cache, int num_seqs, int num_heads,
                                              int num_kv_heads, float scale,
                                              const int* block_tables, const int* seq_lens,
                                              int max_num_blocks_per_seq, int max_seq_len,
                                              cudaStream_t stream) {
    return launch_v1(out, q, k_cache, v_cache, num_seqs, num_heads, num_kv_heads, scale,
                     block_tables, seq_lens, max_num_blocks_per_seq, max_seq_len, stream);
}
extern "C" cudaError_t paged_attention_v2_f32(
    float* out, float* exp_sums, float* max_logits, float* tmp_out, const float* q,
    const float* k_cache, const float* v_cache, int num_seqs, int num_heads, int num_kv_heads,
    float scale, const int* block_tables, const int* seq_lens, int max_num_blocks_per_seq,
    int max_seq_len, cudaStream_t stream) {
    return launch_v2(out, exp_sums, max_logits, tmp_out, q, k_cache, v_cache, num_seqs, num_heads,
                     num_kv_heads, scale, block_tables, seq_lens, max_num_blocks_per_seq,
                     max_seq_len, stream);
}
extern "C" cudaError_t paged_attention_v2_f16(
    __half* out, float* exp_sums, float* max_logits, __half* tmp_out, const __half* q,
    const __half* k_cache, const __half* v_cache, int num_seqs, int num_heads, int num_kv_heads,
    float scale, const int* block_tables, const int* seq_lens, int max_num_blocks_per_seq,
    int max_seq_len, cudaStream_t stream) {
    return launch_v2(out, exp_sums, max_logits, tmp_out, q, k_cache, v_cache, num_seqs, num_heads,
                     num_kv_heads, scale, block_tables, seq_lens, max_num_blocks_per_seq,
                     max_seq_len, stream);
}
