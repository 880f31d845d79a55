// Exercise 10.4: A long context, split among threads and merged.
// Your parts begin in lines 56 and 63 of this file.
//
// One token attends to a long context; the loop over parts of PART keys is parallel, so each thread
// works on parts of its own. Write two pieces. `attend` computes the state of the keys `first` to
// `last`, of which `last` itself is not one: the largest score, Σ e^(score - maximum), and Σ
// e^(score - maximum) × value. A score is q · key × scale. There may be no keys, and then the state
// stays as it is. `merge` makes out, [head_dim], and the log-sum-exp of all scores from the states;
// a state without keys has the maximum -∞. At least one part has a key.
//
// You have
// - `q`, `keys`, `values`: float: `[head_dim]`, and twice `[length, head_dim]`; head_dim is a
//   multiple of LANES
// - `first`, `last`: int64_t: the keys of this part; `last` is the first that is not; at most PART
//   of them
// - `scores`: float, PART places of this part's own: key k has place k - first
// - `state.maximum`, `state.total`, `state.sums`: -INFINITY, 0, and `[head_dim]` zeros, to be set
// - `states`, `parts`: the states of all parts, and how many there are
// - `out`, `lse`: float: `[head_dim]`; one number, `*lse`
// - `memset(to, 0, head_dim * sizeof(float))`: fills `head_dim` floats with zeros
// - `scale`, `expf(x)`, `logf(x)`: the factor of scores; natural exponential and logarithm
// - `LANES`, `Floats`: 4, 8 or 16, by the processor; a vector of that many floats, for which +, *
//   and += work, also with a float
// - `load<Floats>(from)`, `store(to, value)`: read and write a vector at an address, which may be
//   any
// - `sum(value)`: returns the sum over the lanes, a float
//
// In a terminal: yaie check 10.4, yaie hint 10.4, yaie reset 10.4.

// Attention of one token over a long context, whose keys are split among threads.
//
// Computes  out = softmax(q · keys × scale) · values, and the log-sum-exp of the scores
// Shapes    q and out [head_dim], keys and values [length, head_dim], all float32; head_dim a
//           multiple of LANES; length at least 1
// Owns      each piece of work: PART keys; a thread takes several pieces
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
    // your lines
    // exercise 10.4 end
}

// The states of all parts as one: out and its log-sum-exp. At least one part has a key.
static void merge(const State* states, int64_t parts, int64_t head_dim, float* out, float* lse) {
    // exercise 10.4 begin: the parts by their weights, divided once
    // your lines
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
