// Attention of a ragged batch over the paged cache.
//
// Computes  softmax(q · keys × scale) · values, causal, and the log-sum-exp of each row
// Shapes    q and out [tokens, heads, head_dim] float32; pools [blocks, block_size, KV heads,
//           head_dim] in float32, float16, bfloat16 or e4m3; head_dim a multiple of LANES
// Owns      each piece of work: one KV head of one sequence, for the query heads that share it;
//           of a prompt some queries and all their keys, of a decode step PART keys
// Moves     the keys and values of the context, once per KV head and tile of queries
// Oracle    float64 over contiguous keys, in tests/test_cpp.py
// Idea      a long context is split among the threads into parts of a fixed length, whose results
//           are merged in order: so the bits do not depend on what else is in the batch.
#pragma once
#include <cmath>

#include "product.h"

constexpr int PART = 256;       // keys whose scores are held together, with room for a last four
constexpr int ROW = PART + 4;
constexpr int QUERY_ROWS = 24;  // queries × heads of a tile, at most, but for large groups
// Rows of probabilities and vectors of values whose sums stay in registers.
constexpr int MOST_ROWS = REGISTERS == 32 ? 4 : 3, MOST_VECTORS = REGISTERS == 32 ? 4 : 2;

struct Attention {
    const int32_t *tables, *context_lens, *starts;
    int64_t q_stride, kind, sequences, width, block_size, heads, kv_heads, head_dim;
    const float* q;  // [tokens, q_stride]: the heads of a token lie together
    const uint8_t *keys, *values;
    float *out, *lse;  // [tokens, heads, head_dim] and [tokens, heads], or null
};

struct Piece {  // of the work: queries first to last of a sequence, by the parts of its keys
    int32_t sequence, kv_head, first, last, part, parts;
    int64_t state;  // where its partial result goes: rows × (head_dim + 1) floats
};

// The pieces of a batch; what their partial results take is added to `floats`.
static inline std::vector<Piece> plan(const Attention& a, int64_t& floats) {
    std::vector<Piece> pieces;
    int64_t group = std::max<int64_t>(1, a.heads / a.kv_heads);  // q may have no heads
    int64_t tile = std::max<int64_t>(1, QUERY_ROWS / group);
    for (int32_t s = 0; s < a.sequences; ++s) {
        int32_t queries = a.starts[s + 1] - a.starts[s], length = a.context_lens[s];
        int32_t parts = queries == 1 ? (length + PART - 1) / PART : 1;
        // A head's last queries attend to the most keys, so their pieces come first.
        for (int32_t h = 0; h < a.kv_heads; ++h)
            for (int32_t last = queries; last > 0; last -= tile)
                for (int32_t part = 0; part < parts; ++part) {
                    int32_t first = std::max<int32_t>(0, last - tile);
                    pieces.push_back({s, h, first, last, part, parts, floats});
                    if (parts > 1) floats += group * (a.head_dim + 1);
                }
    }
    return pieces;
}

// M rows of probabilities by `count` values, V vectors of each: added to sums [M, head_dim].
template <class F, int M, int V>
static inline void weigh(const float* weights, const uint8_t* const* values, int64_t count,
                         int64_t from, float* sums, int64_t head_dim) {
    Floats total[M][V];
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < V; ++v) total[m][v] = load<Floats>(sums + m * head_dim + v * LANES);
    for (int64_t k = 0; k < count; ++k) {
        Floats value[V];
        for (int v = 0; v < V; ++v) value[v] = F::unpack(values[k] + (from + v) * F::BYTES, 0);
        for (int m = 0; m < M; ++m)
            for (int v = 0; v < V; ++v) total[m][v] += value[v] * weights[m * ROW + k];
    }
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < V; ++v) store(sums + m * head_dim + v * LANES, total[m][v]);
}

template <class F>
static void attend(const Attention& a, float scale, const Piece& p, float* states, Room& room) {
    const int64_t group = a.heads / a.kv_heads, dim = a.head_dim, each = F::BYTES / F::GROUP;
    const int64_t rows = (p.last - p.first) * group, stride = a.kv_heads * dim * each;
    const int64_t start = a.starts[p.sequence], length = a.context_lens[p.sequence];
    const int64_t seen = length - (a.starts[p.sequence + 1] - start);  // before the first query
    float* q = room.floats(rows * (2 * dim + ROW + 2) + a.block_size * dim);
    float *sums = q + rows * dim, *scores = sums + rows * dim, *scratch = scores + rows * ROW;
    float *most = scratch + a.block_size * dim, *total = most + rows;
    for (int64_t row = 0; row < rows; ++row) {
        int64_t token = start + p.first + row / group, head = p.kv_head * group + row % group;
        const float* from = a.q + token * a.q_stride + head * dim;
        for (int64_t i = 0; i < dim; ++i) q[row * dim + i] = from[i] * scale;
        most[row] = -INFINITY, total[row] = 0.0f;
    }
    memset(sums, 0, rows * dim * 4);
    const uint8_t* values[PART];
    int64_t end = seen + p.last, key = (int64_t)p.part * PART;
    if (p.parts > 1) end = std::min<int64_t>(end, key + PART);
    for (; key < end; key += PART) {
        int64_t count = std::min<int64_t>(PART, end - key);
        for (int64_t k = 0; k < count;) {  // block by block: in it, tokens are `stride` apart
            int64_t offset = (key + k) % a.block_size;
            int64_t run = std::min(a.block_size - offset, count - k);
            int64_t block = a.tables[p.sequence * a.width + (key + k) / a.block_size];
            int64_t at = (block * a.block_size + offset) * stride + p.kv_head * dim * each;
            const Rows keys{a.keys + at, stride, run - 1};
            multiply<F>(keys, run, q, dim, rows, dim, scores + k, ROW, scratch);
            for (int64_t i = 0; i < run; ++i) values[k + i] = a.values + at + i * stride;
            k += run;
        }
        for (int64_t row = 0; row < rows; ++row) {
            float* score = scores + row * ROW;
            int64_t until = seen + p.first + row / group + 1 - key;
            int64_t visible = std::max<int64_t>(std::min(count, until), 0);
            int64_t padded = (count + LANES - 1) / LANES * LANES;
            for (int64_t k = visible; k < padded; ++k) score[k] = -INFINITY;
            Floats high = splat(most[row]), mass = {};
            for (int64_t k = 0; k < padded; k += LANES)
                high = larger(high, load<Floats>(score + k));
            float maximum = std::max(largest(high), -3e38f);  // -inf - -inf would be NaN
            for (int64_t k = 0; k < padded; k += LANES) {
                Floats weight = exponential(load<Floats>(score + k) - maximum);
                mass += weight;
                store(score + k, weight);
            }
            float rescale = exponential(splat(most[row] - maximum))[0];
            total[row] = total[row] * rescale + sum(mass), most[row] = maximum;
            for (int64_t i = 0; i < dim; ++i) sums[row * dim + i] *= rescale;
        }
        each_tile<MOST_ROWS>(rows, [&](int64_t row, auto m) {
            each_tile<MOST_VECTORS>(dim / LANES, [&](int64_t v, auto n) {
                weigh<F, decltype(m)::value, n>(scores + row * ROW, values, count, v,
                                                sums + row * dim + v * LANES, dim);
            });
        });
    }
    for (int64_t row = 0; row < rows; ++row) {
        int64_t token = start + p.first + row / group, head = p.kv_head * group + row % group;
        int64_t at = token * a.heads + head;
        float* to = p.parts > 1 ? states + p.state + row * (dim + 1) : a.out + at * dim;
        float by = total[row] > 0.0f ? 1.0f / total[row] : 0.0f, lse = most[row] + logf(total[row]);
        for (int64_t i = 0; i < dim; ++i) to[i] = sums[row * dim + i] * by;
        if (p.parts > 1) to[dim] = lse;
        else if (a.lse) a.lse[at] = lse;
    }
}

// Merge the parts of a sequence's KV head in order, each weighed by its share of the sum of
// exponentials; `p` is the first of them.
static inline void merge(const Attention& a, const Piece& p, const float* states) {
    const int64_t group = a.heads / a.kv_heads, dim = a.head_dim;
    for (int64_t row = 0; row < group; ++row) {
        const float* part = states + p.state + row * (dim + 1);
        int64_t at = a.starts[p.sequence] * a.heads + p.kv_head * group + row;
        float *to = a.out + at * dim, lse = part[dim];
        memcpy(to, part, dim * 4);
        for (int i = 1; i < p.parts; ++i) {
            part += group * (dim + 1);
            float both = std::max(lse, part[dim]) + log1pf(expf(-fabsf(lse - part[dim])));
            float old = expf(lse - both), share = expf(part[dim] - both);
            for (int64_t n = 0; n < dim; ++n) to[n] = to[n] * old + part[n] * share;
            lse = both;
        }
        if (a.lse) a.lse[at] = lse;
    }
}
