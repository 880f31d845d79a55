// The residual added and the sum normalized, in one call.
//
// Computes  total = x + residual and out = total / √(mean of total² + eps) × weight, row by row
// Shapes    x, residual, out and total [rows, size], weight [size], all float32; any rows and size
// Owns      each thread: whole rows
// Moves     x and residual once, total and out once; the second pass finds its row of total in the
//           nearest cache
// Oracle    float64, in tests/test_own_roof.py and in the check of exercise 10.3
// Idea      the sum of squares is taken while the sum is made, so x and residual are read once.
#include <cmath>

#include "cpu/lanes.h"

static void add_and_normalize(const float* x, const float* residual, const float* weight,
                              float* out, float* total, int64_t size, float eps) {
    // exercise 10.3 begin: the sum and its squares, then the row by its scale and the weight
    Floats squares = {};
    float rest = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        Floats value = load<Floats>(x + i) + load<Floats>(residual + i);
        store(total + i, value);
        squares += value * value;
    }
    for (; i < size; ++i) {
        total[i] = x[i] + residual[i];
        rest += total[i] * total[i];
    }
    float scale = 1.0f / sqrtf((sum(squares) + rest) / size + eps);
    for (i = 0; i + LANES <= size; i += LANES)
        store(out + i, load<Floats>(total + i) * scale * load<Floats>(weight + i));
    for (; i < size; ++i) out[i] = total[i] * scale * weight[i];
    // exercise 10.3 end
}

extern "C" void add_rms_norm(const float* x, const float* residual, const float* weight, float* out,
                             float* total, int64_t rows, int64_t size, double eps,
                             int64_t threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r)
        add_and_normalize(x + r * size, residual + r * size, weight, out + r * size,
                          total + r * size, size, eps);
}
