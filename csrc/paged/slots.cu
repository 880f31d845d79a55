// A selection of tokens as block tables for blocks of one token, for any kernel of this folder.
//
// Computes  slots[t, i] = the slot of position selected[t, i] of query t's sequence, for i below
//           counts[t]; 0 after that
// Shapes    selected and slots int32 [tokens, most], counts int32 [tokens], block tables int32
//           [batch, max_blocks], cu_seqlens int32 [batch + 1] or null, as in paged.cuh
// Owns      each thread block: a query; each thread: every THREADS-th entry of its row
// Moves     12 bytes per valid entry, 4 per other one
// Oracle    a look-up one by one, in tests/test_attention_variants.py
#include "paged/paged.cuh"

constexpr int THREADS = 256;  // per thread block

__global__ void slot_tables(Paged<float> paged, const int* selected, const int* counts, int* slots,
                            int most) {
    int64_t row = (int64_t)blockIdx.x * most;
    Context context = find_context(paged, blockIdx.x);
    for (int i = threadIdx.x; i < most; i += THREADS)
        slots[row + i] = i < counts[blockIdx.x]
                             ? (int)find_slot(context, selected[row + i], paged.block_size)
                             : 0;
}

extern "C" cudaError_t slot_tables_i32(const int* selected, const int* counts,
                                       const int* block_tables, const int* context_lens,
                                       const int* cu_seqlens, int* slots, int tokens, int batch,
                                       int most, int block_size, int max_blocks,
                                       cudaStream_t stream) {
    if (tokens == 0 || most == 0) return cudaSuccess;
    Paged<float> paged = {};
    paged.block_tables = block_tables, paged.context_lens = context_lens;
    paged.cu_seqlens = cu_seqlens, paged.batch = batch;
    paged.block_size = block_size, paged.max_blocks = max_blocks;
    slot_tables<<<tokens, THREADS, 0, stream>>>(paged, selected, counts, slots, most);
    return cudaGetLastError();
}
