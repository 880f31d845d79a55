// Compares the products and the attention of csrc/cpu with plain loops, on any processor.
#include <cstdio>
#include <cstdlib>

#include "attention.h"

static float drawn() { return (rand() % 2001 - 1000) / 1000.0f; }

static bool near(double a, double b) { return std::abs(a - b) <= 1e-4 * (1.0 + std::abs(b)); }

// Round x to 8 bits and back. Returns whether the error is at most half a step.
static bool round_all(float* x, int64_t count) {
    bool right = true;
    for (int64_t at = 0; at < count; at += 32) {
        Rounded group;
        round_groups(x + at, 32, &group);
        for (int i = 0; i < 32; ++i) {
            float number = group.x[i] * group.scale;
            right &= std::abs(number - x[at + i]) <= 0.5001f * group.scale;
            x[at + i] = number;
        }
    }
    return right;
}

template <class F>
static void product_of(const char* name) {
    const int64_t size = 96, rows = 37, stride = row_bytes<F>(size);
    bool right = true;
    for (int64_t tokens : {1, 2, 3, 9}) {
        std::vector<uint8_t> weights(rows * stride);
        for (auto& byte : weights) byte = rand() & 0x3b;  // every scale is a small finite number
        if (F::KIND == F32::KIND)
            for (size_t i = 0; i < weights.size(); i += 4) *(float*)&weights[i] = drawn();
        Room x_room, room;
        float* x = x_room.floats(tokens * size);
        for (int64_t i = 0; i < tokens * size; ++i) x[i] = i % size < 32 ? 0.0f : drawn();
        Multiplier multiplier{x, size, F::KIND, room};
        std::vector<float> out(tokens * WIDTH), wide(size);
        std::vector<uint8_t> stored = weights, row(stride);
        if constexpr (INTERLEAVED<F>)
            for (int64_t r = 0; r + LANES <= rows; r += LANES)
                interleave<F>({weights.data(), stride, rows - 1}, r, size, &stored[r * stride]);
        Part part{stored.data(), rows, F::KIND};
        for (int64_t r = 0; r < rows; ++r) {
            const uint8_t* found = row_of<F>(part, size, r, row.data());
            right &= memcmp(found, &weights[r * stride], stride) == 0;
        }
        int64_t compared = 0;
        for (int64_t panel = 0; panel < panels(rows); ++panel) {
            const Rows found = multiplier.panel(part, panel, 0, tokens, out.data());
            if (INTERLEAVED<F> && panel == 0) right &= round_all(x, tokens * size);
            for (int64_t r = 0; r < PANEL; ++r) {
                if (found.place(r) > found.last) continue;
                widen<F>(&weights[found.place(r) * stride], size, wide.data());
                ++compared;
                for (int64_t t = 0; t < tokens; ++t) {
                    double sum = 0;
                    for (int64_t i = 0; i < size; ++i) sum += (double)wide[i] * x[t * size + i];
                    right &= near(out[t * WIDTH + r], sum);
                }
            }
        }
        right &= compared == rows;
    }
    printf("product %s %s\n", name, right ? "right" : "wrong");
}

template <class F>
static void attention_of(const char* name) {
    const int64_t heads = 6, kv_heads = 2, dim = 32, block = 5, width = 120;
    const int32_t lengths[2] = {563, 41}, starts[3] = {0, 1, 10};
    const int64_t slots = 2 * width * block, wide = kv_heads * dim, tokens = 10;
    std::vector<float> q(tokens * heads * dim), keys(slots * wide), values(slots * wide);
    for (auto* numbers : {&q, &keys, &values})
        for (float& number : *numbers) number = drawn();
    std::vector<uint8_t> stored[2];
    for (int i = 0; i < 2; ++i) {
        std::vector<float>& from = i ? values : keys;
        stored[i].resize(from.size() * (F::BYTES / F::GROUP));
        narrow<F>(from.data(), from.size(), stored[i].data());
        widen<F>(stored[i].data(), from.size(), from.data());
    }
    std::vector<int32_t> tables(2 * width);
    for (int64_t i = 0; i < 2 * width; ++i) tables[i] = 2 * width - 1 - i;
    std::vector<float> out(tokens * heads * dim), lse(tokens * heads);
    Attention a{tables.data(), lengths, starts, heads * dim, F::KIND, 2, width, block, heads,
                kv_heads, dim, q.data(), stored[0].data(), stored[1].data(), out.data(), lse.data()};
    int64_t floats = 0;
    std::vector<Piece> pieces = plan(a, floats);
    std::vector<float> states(floats);
    Room room;
    for (const Piece& piece : pieces) attend<F>(a, 0.5f, piece, states.data(), room);
    for (const Piece& piece : pieces)
        if (piece.parts > 1 && piece.part == 0) merge(a, piece, states.data());
    bool right = true;
    for (int s = 0; s < 2; ++s)
        for (int t = starts[s]; t < starts[s + 1]; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                int64_t seen = lengths[s] - (starts[s + 1] - 1 - t);
                double total = 0;
                std::vector<double> wanted(dim);
                for (int64_t k = 0; k < seen; ++k) {
                    int64_t slot = tables[s * width + k / block] * block + k % block, at = slot * wide;
                    at += h / (heads / kv_heads) * dim;
                    double score = 0;
                    for (int64_t i = 0; i < dim; ++i)
                        score += (double)q[(t * heads + h) * dim + i] * keys[at + i];
                    total += exp(score * 0.5);
                    for (int64_t i = 0; i < dim; ++i) wanted[i] += exp(score * 0.5) * values[at + i];
                }
                right &= near(lse[t * heads + h], log(total));
                for (int64_t i = 0; i < dim; ++i)
                    right &= near(out[(t * heads + h) * dim + i], wanted[i] / total);
            }
    printf("attention %s %s\n", name, right ? "right" : "wrong");
}

int main() {
    product_of<F32>("F32"), product_of<F16>("F16"), product_of<BF16>("BF16");
    product_of<Q8_0>("Q8_0"), product_of<Q4_0>("Q4_0"), product_of<Q4_1>("Q4_1");
    attention_of<F32>("F32"), attention_of<F16>("F16"), attention_of<BF16>("BF16");
}
