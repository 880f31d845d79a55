// A step of a Llama over the paged cache, and its operators one by one.
//
// Computes  the hidden states of some tokens: embedding, layers of attention and MLP, last norm
// Shapes    see `Model` and `Batch`, which yaie/model/step.py fills in: 8 bytes a field
// Owns      each thread takes pieces of each stage in turn: panels of a product, rows, KV heads
// Moves     every weight once, the context's keys and values once; activations stay in the caches
// Oracle    the reference operators and transformers, in tests/test_cpp.py
// Idea      one call per step, eight stages per layer, in one parallel region: a decode step of a
//           small model is a hundred and fifty products of a tenth of a millisecond each.
#include <omp.h>
#include <atomic>
#include <thread>

#include "attention.h"

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

// The operators of rows, in float32. A row begins where the vectors of the last one end.
static inline int64_t pitch(int64_t size) { return (size + LANES - 1) / LANES * LANES; }

// `work(0)` to `work(count - 1)`; a single one is the calling thread's, which may be one of a team.
template <class Function>
static inline void each_row(int64_t count, int64_t threads, Function work) {
    if (count == 1) return work(0);
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < count; ++i) work(i);
}

// RMSNorm of each row of x [rows, size].
extern "C" void rms_norm(const float* x, const float* weight, float* out, int64_t rows,
                         int64_t size, double eps, int64_t threads) {
    each_row(rows, threads, [&](int64_t row) {
        const int64_t at = row * pitch(size);
        Floats squares = {};
        for (int64_t i = at; i < at + size; i += LANES)
            squares += load<Floats>(x + i) * load<Floats>(x + i);
        float scale = 1.0f / sqrtf(sum(squares) / size + (float)eps);
        for (int64_t i = 0; i < size; i += LANES)
            store(out + at + i, load<Floats>(x + at + i) * scale * load<Floats>(weight + i));
    });
}

// silu(gate) × up of each row of x [rows, 2 × size]; out may be x, if there is one row.
extern "C" void silu_and_mul(const float* x, float* out, int64_t rows, int64_t size,
                             int64_t threads) {
    each_row(rows, threads, [&](int64_t row) {
        const float *gate = x + 2 * row * pitch(size), *up = gate + pitch(size);
        for (int64_t i = 0; i < size; i += LANES) {
            Floats value = load<Floats>(gate + i), silu = value / (exponential(-value) + 1.0f);
            store(out + row * pitch(size) + i, silu * load<Floats>(up + i));
        }
    });
}

// Rotate x [tokens, heads, head_dim] in place. Component i of a head is paired with component
// i + head_dim / 2, and `cos` and `sin` are [positions, head_dim / 2].
extern "C" void rotary(float* x, const int64_t* positions, const float* cos, const float* sin,
                       int64_t tokens, int64_t heads, int64_t head_dim, int64_t threads) {
    const int64_t half = head_dim / 2;
    each_row(tokens, threads, [&](int64_t t) {
        const int64_t at = positions[t] * half;
        float* head = x + t * heads * head_dim;
        for (int64_t h = 0; h < heads; ++h, head += head_dim)
            for (int64_t i = 0; i < half; ++i) {
                float first = head[i], second = head[i + half];
                head[i] = first * cos[at + i] - second * sin[at + i];
                head[i + half] = second * cos[at + i] + first * sin[at + i];
            }
    });
}

// Write keys and values [tokens, size] to their slots, in the pools' format.
extern "C" void reshape_and_cache(const float* keys, const float* values, int64_t kind,
                                  uint8_t* key_pool, uint8_t* value_pool, const int64_t* slots,
                                  int64_t tokens, int64_t size, int64_t) {
    CacheFormat::with(kind, [&](auto f) {
        for (int64_t t = 0; t < tokens; ++t) {
            int64_t at = slots[t] * size * (f.BYTES / f.GROUP);
            narrow<decltype(f)>(keys + t * pitch(size), size, key_pool + at);
            narrow<decltype(f)>(values + t * pitch(size), size, value_pool + at);
        }
    });
}

// Interleave rows of 4 bits in place, LANES at a time; what is left at the end stays as it is.
extern "C" void interleave(const Part& part, int64_t size, int64_t threads) {
    WeightFormat::with(part.kind, [&](auto f) {
        using F = decltype(f);
        const int64_t stride = row_bytes<F>(size), count = LANES * stride;
        if constexpr (INTERLEAVED<F>) each_row(part.rows / LANES, threads, [&](int64_t i) {
            uint8_t* rows = (uint8_t*)part.data + i * count;
            const std::vector<uint8_t> copy(rows, rows + count);
            interleave<F>(Rows{copy.data(), stride, LANES - 1}, 0, size, rows);
        });
    });
}

// Rows of an embedding, in float32.
extern "C" void embed(const Part& part, int64_t size, const int64_t* ids, int64_t count, float* out,
                      int64_t) {
    WeightFormat::with(part.kind, [&](auto f) {
        using F = decltype(f);
        std::vector<uint8_t> row(row_bytes<F>(size));
        for (int64_t i = 0; i < count; ++i)
            widen<F>(row_of<F>(part, size, ids[i], row.data()), size, out + i * size);
    });
}

// The threads of one step, woken once per token: they take pieces of work in turn and meet at
// barriers. A thread that waits tries for some microseconds and then offers its core to other
// processes at every try, so that two engines on the same cores both go on.
struct Team {
    static constexpr int PATIENCE = 20000;  // tries: about 20 microseconds
    alignas(64) std::atomic<int64_t> next[2] = {0, 0};  // of the stages with even and odd numbers
    alignas(64) std::atomic<int64_t> arrived{0};        // at the barriers of all stages

    // Each thread of the team calls this with the same `count`. The numbers below it are dealt out
    // in runs, shorter ones towards the end. When it returns, all threads see all work done.
    template <class Function>
    void each(int64_t count, Function work) {
        const int64_t threads = omp_get_num_threads(), stage = arrived / threads;
        std::atomic<int64_t>& first = next[stage % 2];
        for (int64_t i = first; i < count; i = first) {
            int64_t end = i + (count - i + 2 * threads - 1) / (2 * threads);
            if (first.compare_exchange_weak(i, end, std::memory_order_relaxed))
                for (; i < end; ++i) work(i);
        }
        next[1 - stage % 2].store(0, std::memory_order_relaxed);  // all have left the last stage
        arrived.fetch_add(1, std::memory_order_acq_rel);
        for (int n = 0; arrived.load(std::memory_order_acquire) < (stage + 1) * threads; ++n)
            if (n > PATIENCE) std::this_thread::yield();
    }
};

// out[t][n] = x[t] · row n of the matrix + bias[n], for all of its parts; ADD adds this to what is
// there. With GATED the two parts are gate and up of the same rows, and out is silu(gate) × up.
enum Finish { STORE, ADD, GATED };
static void multiply_all(Team& team, Room& room, const Matrix& matrix, const float* x,
                         int64_t tokens, float* out, Finish finish) {
    const int64_t parts = finish == GATED ? 1 : 3, blocks = (tokens + TOKENS - 1) / TOKENS;
    int64_t all = 0, wide = 0, kind = 0;
    for (const Part& part : matrix.parts) kind = std::max(kind, part.kind);
    for (const Part* part = matrix.parts; part < matrix.parts + parts; ++part)
        all += panels(part->rows), wide += part->rows;
    Multiplier multiplier{x, matrix.size, kind, room};
    team.each(all * blocks, [&](int64_t piece) {
        alignas(64) float values[TOKENS * WIDTH];
        int64_t block = piece / all * TOKENS, panel = piece % all, row = 0;
        int64_t count = std::min<int64_t>(TOKENS, tokens - block);
        const Part* part = matrix.parts;
        for (; panel >= panels(part->rows); ++part) panel -= panels(part->rows), row += part->rows;
        const Rows rows = multiplier.panel(*part, panel, block, count, values);
        if (finish == GATED) multiplier.panel(part[1], panel, block, count, values + PANEL);
        for (int64_t t = 0; t < count; ++t) {
            float *to = out + (block + t) * wide + row, *from = values + t * WIDTH;
            if (finish == GATED) silu_and_mul(from, from, 1, PANEL, 1);
            auto put = [&](auto runs) {  // `runs` runs of neighboring rows
                for (int64_t i = 0; i < runs; ++i) {
                    int64_t at = rows.place(i), end = std::min(at + PANEL / runs, rows.last + 1);
                    for (int64_t n = i; at < end; ++at, n += runs) {
                        from[n] += matrix.bias ? matrix.bias[row + at] : 0.0f;
                        to[at] = finish == ADD ? to[at] + from[n] : from[n];
                    }
                }
            };
            if (rows.along == 1) put(std::integral_constant<int, 4>());
            else put(std::integral_constant<int, 1>());
        }
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

static thread_local Room call_room, thread_room;
// What the last layer makes of some tokens, normalized, into out, float32 [rows, hidden]; the keys
// and values of all tokens are written in each layer.
extern "C" void step(const Model& m, const Layer* layers, const Batch& b, double eps, float* out,
                     int64_t threads) {
    const int64_t dim = m.head_dim, tokens = b.tokens, hidden = m.hidden, wide = m.heads * dim;
    const int64_t kv_size = m.kv_heads * dim, qkv_size = wide + 2 * kv_size;
    Attention a{b.tables, b.context_lens, b.starts, qkv_size, m.cache_kind, b.sequences, b.width,
                m.block_size, m.heads, m.kv_heads, dim};
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(a, floats);
    int64_t rows = tokens, most = std::max(tokens, b.rows);
    float* total = call_room.floats(most * (2 * hidden + qkv_size + wide + m.inner) + floats);
    float *normed = total + most * hidden, *qkv = normed + most * hidden;
    float *attended = qkv + most * qkv_size, *inner = attended + most * wide;
    float* states = floats ? inner + most * m.inner : nullptr;
    a.q = qkv, a.out = attended;
    embed(m.embedding, hidden, b.token_ids, tokens, total, 1);
    Team team;
#pragma omp parallel num_threads(threads) firstprivate(a, rows, total, normed, attended)
    {
        auto normalize = [&](const float* weight, float* to) {
            team.each(rows, [&](int64_t i) {
                rms_norm(total + i * hidden, weight, to + i * hidden, 1, hidden, eps, 1);
            });
        };
        for (const Layer* layer = layers; layer < layers + m.num_layers; ++layer) {
            normalize(layer->attention_norm, normed);
            multiply_all(team, thread_room, layer->qkv, normed, tokens, qkv, STORE);
            team.each(tokens, [&](int64_t t) {
                float *heads = qkv + t * qkv_size, *keys = heads + wide;
                rotary(heads, b.positions + t, m.cos, m.sin, 1, m.heads + m.kv_heads, dim, 1);
                reshape_and_cache(keys, keys + kv_size, a.kind, layer->keys, layer->values,
                                  b.slots + t, 1, kv_size, 1);
            });
            a.keys = layer->keys, a.values = layer->values;
            attend_all(team, thread_room, a, 1.0f / sqrtf(dim), pieces, states);
            if (layer == layers + m.num_layers - 1) {  // from here on, only what is asked for
                team.each(rows = b.rows, [&](int64_t i) {
                    std::copy_n(attended + b.logit_rows[i] * wide, wide, qkv + i * wide);
                    std::copy_n(total + b.logit_rows[i] * hidden, hidden, normed + i * hidden);
                });
                attended = qkv, std::swap(total, normed);
            }
            multiply_all(team, thread_room, layer->output, attended, rows, total, ADD);
            normalize(layer->mlp_norm, normed);
            multiply_all(team, thread_room, layer->gate_up, normed, rows, inner, GATED);
            multiply_all(team, thread_room, layer->down, inner, rows, total, ADD);
        }
        normalize(m.norm, out);
    }
}

extern "C" int lanes(int64_t) { return LANES; }

// x [tokens, size] by a matrix.
extern "C" void product(const Matrix& matrix, const float* x, int64_t tokens, float* out,
                        int64_t threads) {
    Team team;
#pragma omp parallel num_threads(threads)
    multiply_all(team, thread_room, matrix, x, tokens, out, STORE);
}

extern "C" void paged_attention(const Attention& attention, double scale, int64_t threads) {
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(attention, floats);
    float* states = floats ? call_room.floats(floats) : nullptr;
    Team team;
#pragma omp parallel num_threads(threads)
    attend_all(team, thread_room, attention, scale, pieces, states);
}
