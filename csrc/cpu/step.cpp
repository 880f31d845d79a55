// A step of a Llama over the paged cache, and its operators one by one.
//
// Computes  the hidden states of some tokens: embedding, layers of attention and MLP, last norm
// Shapes    see `Model` and `Batch`, which yaie/model/step.py fills in: 8 bytes a field
// Owns      each thread takes pieces of each stage in turn: panels of a product, rows, KV heads
// Moves     every weight once, the context's keys and values once; activations stay in the caches
// Oracle    the reference operators and transformers, in tests/test_cpp.py
// Idea      one call per step, eight stages per layer, in one parallel region: a decode step of a
//           small model is a hundred and fifty products of a tenth of a millisecond each.
#include "attention.h"
#include "nibbles.h"
#include "rows.h"
#include "team.h"

struct Matrix {  // up to three parts of rows: query, key and value projections, or gate and up
    Part parts[3];
    int64_t size;
    const float* bias;  // one per row of all parts, or null
};
struct Layer {
    Matrix qkv, output, gate_up, down;
    const float *attention_norm, *mlp_norm;
    uint8_t *keys, *values;
};
struct Model {
    Part embedding;
    const float *norm, *cos, *sin;
    int64_t num_layers, hidden, heads, kv_heads, head_dim, inner, cache_kind, block_size;
};
struct Batch {  // as yaie.model.batch.Batch
    const int64_t *token_ids, *positions, *slots, *logit_rows;
    const int32_t *tables, *context_lens, *starts;
    int64_t tokens, sequences, width, rows;
};

// out[t][n] = x[t] · row n of the matrix, for all of its parts; or `finish(t, n, values, count)`
// is called with `count` results from row n on.
template <class Finish>
static void multiply_all(Team& team, Room& room, const Matrix& matrix, const float* x,
                         int64_t tokens, Finish finish) {
    int64_t of[3], all = 0;
    for (int i = 0; i < 3; ++i) all += of[i] = panels(matrix.parts[i].rows);
    Multiplier multiplier(x, matrix.size, room);
    team.each(all * ((tokens + TOKENS - 1) / TOKENS), [&](int64_t piece) {
        alignas(64) float out[TOKENS * PANEL];
        int64_t block = piece / all * TOKENS, panel = piece % all, row = 0;
        int64_t count = std::min<int64_t>(TOKENS, tokens - block);
        int part = 0;
        for (; panel >= of[part]; ++part) panel -= of[part], row += matrix.parts[part].rows;
        row += panel * PANEL;
        int64_t rows = multiplier.panel(matrix.parts[part], panel, block, count, out);
        for (int64_t t = 0; t < count; ++t) {
            if (matrix.bias)
                for (int64_t n = 0; n < rows; ++n) out[t * PANEL + n] += matrix.bias[row + n];
            finish(block + t, row, out + t * PANEL, rows);
        }
    });
}

// Gate and up of the same rows, so that what leaves is silu(gate) × up already.
static void multiply_gated(Team& team, Room& room, const Matrix& matrix, const float* x,
                           int64_t tokens, float* out) {
    const int64_t inner = matrix.parts[0].rows, all = panels(inner);
    Multiplier multiplier(x, matrix.size, room);
    team.each(all * ((tokens + TOKENS - 1) / TOKENS), [&](int64_t piece) {
        alignas(64) float gate[TOKENS * PANEL], up[TOKENS * PANEL];
        int64_t block = piece / all * TOKENS, panel = piece % all;
        int64_t count = std::min<int64_t>(TOKENS, tokens - block), rows = 0;
        for (int i = 0; i < 2; ++i)
            rows = multiplier.panel(matrix.parts[i], panel, block, count, i ? up : gate);
        for (int64_t t = 0; t < count; ++t)
            silu_and_mul_row(gate + t * PANEL, up + t * PANEL, rows,
                             out + (block + t) * inner + panel * PANEL);
    });
}

static void attend_all(Team& team, Room& room, const Attention& a, float scale,
                       const std::vector<Piece>& pieces, float* states) {
    team.each(pieces.size(), [&](int64_t i) {
        with_cache(a.kind, [&](auto f) { attend<decltype(f)>(a, scale, pieces[i], states, room); });
    });
    if (states) team.each(pieces.size(), [&](int64_t i) {
        if (pieces[i].parts > 1 && pieces[i].part == 0) merge(a, pieces[i], states);
    });
}

// Rotate the queries and keys of one token where they lie, and write its keys and values.
static void rotate_and_cache(const Model& m, const Layer& layer, const Batch& b, int64_t t,
                             float* heads) {
    const int64_t dim = m.head_dim, size = m.kv_heads * dim, half = dim / 2;
    const float *cos = m.cos + b.positions[t] * half, *sin = m.sin + b.positions[t] * half;
    for (int64_t h = 0; h < m.heads + m.kv_heads; ++h) rotate(heads + h * dim, dim, cos, sin);
    const float* keys = heads + m.heads * dim;
    with_cache(m.cache_kind, [&](auto f) {
        int64_t at = b.slots[t] * size * (f.BYTES / f.GROUP);
        narrow<decltype(f)>(keys, size, layer.keys + at);
        narrow<decltype(f)>(keys + size, size, layer.values + at);
    });
}

static thread_local Room call_room, thread_room;
// What the last layer makes of some tokens, normalized, into out, float32 [rows, hidden]; the keys
// and values of all tokens are written in each layer.
extern "C" void step(const Model* model, const Layer* layers, const Batch* batch, double eps,
                     float* out, int64_t threads) {
    const Model& m = *model;
    const Batch& b = *batch;
    const int64_t dim = m.head_dim, tokens = b.tokens, hidden = m.hidden, wide = m.heads * dim;
    const int64_t qkv_size = wide + 2 * m.kv_heads * dim;
    Attention a{};
    a.tables = b.tables, a.context_lens = b.context_lens, a.starts = b.starts;
    a.kind = m.cache_kind, a.sequences = b.sequences, a.width = b.width, a.q_stride = qkv_size;
    a.block_size = m.block_size, a.heads = m.heads, a.kv_heads = m.kv_heads, a.head_dim = dim;
    const float scale = 1.0f / sqrtf((float)dim);
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(a, floats);
    float* total = call_room.floats(tokens * (2 * hidden + qkv_size + wide + m.inner) + floats);
    float *normed = total + tokens * hidden, *qkv = normed + tokens * hidden;
    float *attended = qkv + tokens * qkv_size, *inner = attended + tokens * wide;
    float* states = floats ? inner + tokens * m.inner : nullptr;
    a.q = qkv, a.out = attended;
    Team team;
#pragma omp parallel num_threads(threads)
    {
        Room& room = thread_room;
        const size_t stride = row_bytes(m.embedding.kind, hidden);
        team.each(tokens, [&](int64_t t) {
            const uint8_t* row = m.embedding.data + b.token_ids[t] * stride;
            with_format(m.embedding.kind,
                        [&](auto f) { widen<decltype(f)>(row, hidden, total + t * hidden); });
            rms_norm_row(total + t * hidden, layers[0].attention_norm, hidden, eps,
                         normed + t * hidden);
        });
        auto add = [&](int64_t t, int64_t n, const float* values, int64_t count) {
            for (int64_t i = 0; i < count; ++i) total[t * hidden + n + i] += values[i];
        };
        for (int64_t l = 0; l < m.num_layers; ++l) {
            const Layer& layer = layers[l];
            Attention mine = a;
            mine.keys = layer.keys, mine.values = layer.values;
            multiply_all(team, room, layer.qkv, normed, tokens,
                         [&](int64_t t, int64_t n, const float* values, int64_t count) {
                             memcpy(qkv + t * qkv_size + n, values, count * 4);
                         });
            team.each(tokens, [&](int64_t t) {
                rotate_and_cache(m, layer, b, t, qkv + t * qkv_size);
            });
            attend_all(team, room, mine, scale, pieces, states);
            multiply_all(team, room, layer.output, attended, tokens, add);
            team.each(tokens, [&](int64_t t) {
                rms_norm_row(total + t * hidden, layer.mlp_norm, hidden, eps,
                             normed + t * hidden);
            });
            multiply_gated(team, room, layer.gate_up, normed, tokens, inner);
            multiply_all(team, room, layer.down, inner, tokens, add);
            bool last = l + 1 == m.num_layers;
            const float* weight = last ? m.norm : layers[l + 1].attention_norm;
            team.each(last ? b.rows : tokens, [&](int64_t i) {
                int64_t t = last ? b.logit_rows[i] : i;
                float* to = last ? out : normed;
                rms_norm_row(total + t * hidden, weight, hidden, eps, to + i * hidden);
            });
        }
    }
}

// ---------------------------------------------------------------- the operators, one by one

extern "C" int lanes(int64_t) { return LANES; }

// Rows of an embedding, in float32.
extern "C" void embed(const Part* part, int64_t size, const int64_t* ids, int64_t count, float* out,
                      int64_t) {
    size_t stride = row_bytes(part->kind, size);
    with_format(part->kind, [&](auto f) {
        for (int64_t i = 0; i < count; ++i)
            widen<decltype(f)>(part->data + ids[i] * stride, size, out + i * size);
    });
}

// x [tokens, size] by a matrix, float32 in and out.
extern "C" void product(const Matrix* matrix, const float* x, int64_t tokens, float* out,
                        int64_t threads) {
    int64_t rows = matrix->parts[0].rows + matrix->parts[1].rows + matrix->parts[2].rows;
    Team team;
#pragma omp parallel num_threads(threads)
    multiply_all(team, thread_room, *matrix, x, tokens,
                 [&](int64_t t, int64_t n, const float* values, int64_t count) {
                     memcpy(out + t * rows + n, values, count * 4);
                 });
}

// `total` is written, and x + residual normalized, unless `residual` is null.
extern "C" void rms_norm(int64_t kind, const uint8_t* x, const uint8_t* residual,
                         const uint8_t* weight, uint8_t* out, uint8_t* total, int64_t rows,
                         int64_t size, double eps, int64_t threads) {
    with_float(kind, [&](auto f) {
        using F = decltype(f);
        int64_t bytes = size * (F::BYTES / F::GROUP);
        std::vector<float> scale(size);
        widen<F>(weight, size, scale.data());
#pragma omp parallel for num_threads(threads)
        for (int64_t r = 0; r < rows; ++r) {
            float *row = thread_room.floats(2 * size), *other = row + size;
            widen<F>(x + r * bytes, size, row);
            if (residual) {
                widen<F>(residual + r * bytes, size, other);
                for (int64_t i = 0; i < size; ++i) row[i] += other[i];
                narrow<F>(row, size, total + r * bytes);
                widen<F>(total + r * bytes, size, row);  // both results agree
            }
            rms_norm_row(row, scale.data(), size, eps, other);
            narrow<F>(other, size, out + r * bytes);
        }
    });
}

extern "C" void silu_and_mul(int64_t kind, const uint8_t* x, uint8_t* out, int64_t rows,
                             int64_t size, int64_t threads) {
    with_float(kind, [&](auto f) {
        using F = decltype(f);
        int64_t bytes = size * (F::BYTES / F::GROUP);
#pragma omp parallel for num_threads(threads)
        for (int64_t r = 0; r < rows; ++r) {
            float *gate = thread_room.floats(3 * size), *up = gate + size, *to = up + size;
            widen<F>(x + 2 * r * bytes, size, gate);
            widen<F>(x + 2 * r * bytes + bytes, size, up);
            silu_and_mul_row(gate, up, size, to);
            narrow<F>(to, size, out + r * bytes);
        }
    });
}

// x [tokens, heads, head_dim], whose tokens are `stride` bytes apart; out is contiguous.
extern "C" void rotary(int64_t kind, const uint8_t* x, int64_t stride, const int64_t* positions,
                       const float* cos, const float* sin, uint8_t* out, int64_t tokens,
                       int64_t heads, int64_t head_dim, int64_t threads) {
    with_float(kind, [&](auto f) {
        using F = decltype(f);
        int64_t bytes = head_dim * (F::BYTES / F::GROUP), half = head_dim / 2;
#pragma omp parallel for num_threads(threads)
        for (int64_t t = 0; t < tokens; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                float* head = thread_room.floats(head_dim);
                widen<F>(x + t * stride + h * bytes, head_dim, head);
                rotate(head, head_dim, cos + positions[t] * half, sin + positions[t] * half);
                narrow<F>(head, head_dim, out + (t * heads + h) * bytes);
            }
    });
}

// Write `size` keys and values of each token to its slot, in the pools' format; tokens are `stride`
// bytes apart.
extern "C" void reshape_and_cache(int64_t kind, const uint8_t* keys, const uint8_t* values,
                                  int64_t key_stride, int64_t value_stride, int64_t cache_kind,
                                  uint8_t* key_pool, uint8_t* value_pool, const int64_t* slots,
                                  int64_t tokens, int64_t size, int64_t) {
    float* row = call_room.floats(size);
    auto write = [&](const uint8_t* from, uint8_t* pool, int64_t slot) {
        with_float(kind, [&](auto f) {
            using F = decltype(f);
            if (kind == cache_kind) {
                int64_t bytes = size * (F::BYTES / F::GROUP);
                memcpy(pool + slot * bytes, from, bytes);
            } else {
                widen<F>(from, size, row);
                narrow<E4M3>(row, size, pool + slot * size);
            }
        });
    };
    for (int64_t t = 0; t < tokens; ++t) {
        write(keys + t * key_stride, key_pool, slots[t]);
        write(values + t * value_stride, value_pool, slots[t]);
    }
}

// q and out are float32; the fields of `attention` are those of the struct.
extern "C" void paged_attention(const Attention* attention, double scale, int64_t threads) {
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(*attention, floats);
    float* states = floats ? call_room.floats(floats) : nullptr;
    Team team;
#pragma omp parallel num_threads(threads)
    attend_all(team, thread_room, *attention, scale, pieces, states);
}
