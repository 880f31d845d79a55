// Attention of one token over a long context, whose keys are split among threads.
//
// Computes  out = softmax(q · keys × scale) · values, and the log-sum-exp of the scores
// Shapes    q and out [head_dim], keys and values [length, head_dim], all float32; head_dim a
//           multiple of LANES; length at least 1
// Owns      each piece of work: PART keys; a thread takes several pieces
// Moves     keys and values once; a state of head_dim + 2 numbers for each piece
// Oracle    float64, in tests/test_own_roof.py and in the check of exercise 10.4
// Idea      softmax over a part needs only its own maximum. Two parts are merged as in notebook 07:
//           each is scaled by e^(its maximum - the larger one). The parts have a fixed length, so
//           the result has the same bits with any number of threads.
#include <cmath>
#include <vector>

#include "cpu/lanes.h"

constexpr int64_t PART = 256;  // keys of a part

// What is known of a part: the largest score, Σ e^(score - maximum), and Σ of that weight × value.
struct State {
    float maximum, total;
    float* sums;  // [head_dim]
};

// The state of keys first to last, last itself not among them; there may be none.
static void attend(const float* q, const float* keys, const float* values, int64_t first,
                   int64_t last, int64_t head_dim, float scale, State& state) {
    state.maximum = -INFINITY;
    state.total = 0.0f;
    memset(state.sums, 0, head_dim * sizeof(float));
    float scores[PART];
    // exercise 10.4 begin: the scores, their maximum, then the weights and the weighted values
    for (int64_t k = first; k < last; ++k) {
        Floats product = {};
        for (int64_t i = 0; i < head_dim; i += LANES)
            product += load<Floats>(q + i) * load<Floats>(keys + k * head_dim + i);
        scores[k - first] = sum(product) * scale;
        if (scores[k - first] > state.maximum) state.maximum = scores[k - first];
    }
    for (int64_t k = first; k < last; ++k) {
        float weight = expf(scores[k - first] - state.maximum);
        state.total += weight;
        for (int64_t i = 0; i < head_dim; ++i)
            state.sums[i] += weight * values[k * head_dim + i];
    }
    // exercise 10.4 end
}

// The states of all parts as one: out and its log-sum-exp. At least one part has a key.
static void merge(const State* states, int64_t parts, int64_t head_dim, float* out, float* lse) {
    // exercise 10.4 begin: the parts by their weights, divided once
    float maximum = -INFINITY, total = 0.0f;
    for (int64_t p = 0; p < parts; ++p)
        if (states[p].maximum > maximum) maximum = states[p].maximum;
    memset(out, 0, head_dim * sizeof(float));
    for (int64_t p = 0; p < parts; ++p) {
        float by = expf(states[p].maximum - maximum);
        total += by * states[p].total;
        for (int64_t i = 0; i < head_dim; ++i) out[i] += by * states[p].sums[i];
    }
    for (int64_t i = 0; i < head_dim; ++i) out[i] /= total;
    *lse = maximum + logf(total);
    // exercise 10.4 end
}

// With `empty`, a part without keys stands before the others and one after them, as parts do that
// a mask leaves nothing of.
extern "C" void split_attention(const float* q, const float* keys, const float* values, float* out,
                                float* lse, int64_t length, int64_t head_dim, double scale,
                                int64_t empty, int64_t threads) {
    int64_t parts = (length + PART - 1) / PART + 2 * empty;
    std::vector<float> sums(parts * head_dim);
    std::vector<State> states(parts);
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < parts; ++p) {
        int64_t first = (p - empty) * PART, last = first + PART < length ? first + PART : length;
        if (first < 0 || first >= length) first = last = 0;
        states[p].sums = sums.data() + p * head_dim;
        attend(q, keys, values, first, last, head_dim, scale, states[p]);
    }
    merge(states.data(), parts, head_dim, out, lse);
}
