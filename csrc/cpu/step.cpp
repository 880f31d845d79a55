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
#include "integers.h"
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

// out[t][n] = x[t] · row n of the matrix + bias[n], for all of its parts; with `add`, this is added to
// what is there.
static void multiply_all(Team& team, Room& room, const Matrix& matrix, const float* x,
                         int64_t tokens, float* out, bool add) {
    int64_t of[3], all = 0, wide = 0;
    for (int i = 0; i < 3; ++i) {
        all += of[i] = panels(matrix.parts[i].rows);
        wide += matrix.parts[i].rows;
    }
    Multiplier multiplier(x, matrix.size, room);
    team.each(all * ((tokens + TOKENS - 1) / TOKENS), [&](int64_t piece) {
        alignas(64) float values[TOKENS * PANEL];
        int64_t block = piece / all * TOKENS, panel = piece % all, row = 0;
        int64_t count = std::min<int64_t>(TOKENS, tokens - block);
        int part = 0;
        for (; panel >= of[part]; ++part) panel -= of[part], row += matrix.parts[part].rows;
        row += panel * PANEL;
        int64_t rows = multiplier.panel(matrix.parts[part], panel, block, count, values);
        for (int64_t t = 0; t < count; ++t) {
            float *to = out + (block + t) * wide + row, *from = values + t * PANEL;
            if (matrix.bias)
                for (int64_t n = 0; n < rows; ++n) from[n] += matrix.bias[row + n];
            for (int64_t n = 0; n < rows; ++n) to[n] = add ? to[n] + from[n] : from[n];
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
        CacheFormat::with(a.kind, [&](auto f) {
            attend<decltype(f)>(a, scale, pieces[i], states, room);
        });
    });
    if (states) team.each(pieces.size(), [&](int64_t i) {
        if (pieces[i].parts > 1 && pieces[i].part == 0) merge(a, pieces[i], states);
    });
}

// `size` numbers to a slot of a pool.
static void write_slot(const float* from, int64_t size, int64_t kind, uint8_t* pool, int64_t slot) {
    CacheFormat::with(kind, [&](auto f) {
        narrow<decltype(f)>(from, size, pool + slot * size * (f.BYTES / f.GROUP));
    });
}

// Rows of an embedding, in float32.
extern "C" void embed(const Part* part, int64_t size, const int64_t* ids, int64_t count, float* out,
                      int64_t) {
    WeightFormat::with(part->kind, [&](auto f) {
        using F = decltype(f);
        for (int64_t i = 0; i < count; ++i)
            widen<F>(part->data + ids[i] * row_bytes<F>(size), size, out + i * size);
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
    const int64_t kv_size = m.kv_heads * dim, qkv_size = wide + 2 * kv_size;
    Attention a{nullptr, nullptr, nullptr, nullptr, nullptr, b.tables, b.context_lens, b.starts,
                qkv_size, m.cache_kind, b.sequences, b.width, m.block_size, m.heads, m.kv_heads,
                dim};
    const float scale = 1.0f / sqrtf((float)dim);
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(a, floats);
    float* total = call_room.floats(tokens * (2 * hidden + qkv_size + wide + m.inner) + floats);
    float *normed = total + tokens * hidden, *qkv = normed + tokens * hidden;
    float *attended = qkv + tokens * qkv_size, *inner = attended + tokens * wide;
    float* states = floats ? inner + tokens * m.inner : nullptr;
    a.q = qkv, a.out = attended;
    Team team;
#pragma omp parallel num_threads(threads) firstprivate(a)
    {
        Room& room = thread_room;
        auto normalize = [&](int64_t t, const float* weight, float* to) {
            rms_norm_row(total + t * hidden, weight, hidden, eps, to);
        };
        team.each(tokens, [&](int64_t t) {
            embed(&m.embedding, hidden, b.token_ids + t, 1, total + t * hidden, 1);
        });
        for (const Layer* layer = layers; layer < layers + m.num_layers; ++layer) {
            team.each(tokens, [&](int64_t t) {
                normalize(t, layer->attention_norm, normed + t * hidden);
            });
            multiply_all(team, room, layer->qkv, normed, tokens, qkv, false);
            team.each(tokens, [&](int64_t t) {
                float *heads = qkv + t * qkv_size, *keys = heads + wide;
                rotate_heads(heads, m.heads + m.kv_heads, dim, b.positions[t], m.cos, m.sin);
                write_slot(keys, kv_size, a.kind, layer->keys, b.slots[t]);
                write_slot(keys + kv_size, kv_size, a.kind, layer->values, b.slots[t]);
            });
            a.keys = layer->keys, a.values = layer->values;
            attend_all(team, room, a, scale, pieces, states);
            multiply_all(team, room, layer->output, attended, tokens, total, true);
            team.each(tokens, [&](int64_t t) {
                normalize(t, layer->mlp_norm, normed + t * hidden);
            });
            multiply_gated(team, room, layer->gate_up, normed, tokens, inner);
            multiply_all(team, room, layer->down, inner, tokens, total, true);
        }
        team.each(b.rows, [&](int64_t i) { normalize(b.logit_rows[i], m.norm, out + i * hidden); });
    }
}

// ------------------------------------------------- the operators, one by one: float32 in and out

extern "C" int lanes(int64_t) { return LANES; }

// x [tokens, size] by a matrix.
extern "C" void product(const Matrix* matrix, const float* x, int64_t tokens, float* out,
                        int64_t threads) {
    Team team;
#pragma omp parallel num_threads(threads)
    multiply_all(team, thread_room, *matrix, x, tokens, out, false);
}

// RMSNorm of each row of x [rows, size].
extern "C" void rms_norm(const float* x, const float* weight, float* out, int64_t rows,
                         int64_t size, double eps, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r)
        rms_norm_row(x + r * size, weight, size, eps, out + r * size);
}

// silu(gate) × up of each row of x [rows, 2 × size].
extern "C" void silu_and_mul(const float* x, float* out, int64_t rows, int64_t size,
                             int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        const float* gate = x + 2 * r * size;
        silu_and_mul_row(gate, gate + size, size, out + r * size);
    }
}

// Rotate x [tokens, heads, head_dim] in place.
extern "C" void rotary(float* x, const int64_t* positions, const float* cos, const float* sin,
                       int64_t tokens, int64_t heads, int64_t head_dim, int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < tokens; ++t)
        rotate_heads(x + t * heads * head_dim, heads, head_dim, positions[t], cos, sin);
}

// Write keys and values [tokens, size] to their slots, in the pools' format.
extern "C" void reshape_and_cache(const float* keys, const float* values, int64_t kind,
                                  uint8_t* key_pool, uint8_t* value_pool, const int64_t* slots,
                                  int64_t tokens, int64_t size, int64_t) {
    for (int64_t t = 0; t < tokens; ++t) {
        write_slot(keys + t * size, size, kind, key_pool, slots[t]);
        write_slot(values + t * size, size, kind, value_pool, slots[t]);
    }
}

extern "C" void paged_attention(const Attention* attention, double scale, int64_t threads) {
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(*attention, floats);
    float* states = floats ? call_room.floats(floats) : nullptr;
    Team team;
#pragma omp parallel num_threads(threads)
    attend_all(team, thread_room, *attention, scale, pieces, states);
}
