// The rotation of some pairs of a head, shared by the kernels that rotate queries and keys.
#pragma once
#include "common.cuh"

// Rotate WIDTH adjacent pairs from `from` to `to`: 1, or 16 bytes of each half of a head. `from`,
// `to`, cosines c and sines s point to the first of them; its other element is `half` elements on.
template <int WIDTH, typename T>
static __device__ void rotate(const T* from, const float* c, const float* s, int half, T* to) {
    if constexpr (WIDTH == 1) {
        float a = to_float(from[0]), b = to_float(from[half]);
        to[0] = from_float<T>(a * *c - b * *s);
        to[half] = from_float<T>(b * *c + a * *s);
    } else {
        Vec<T> low = load16(from), high = load16(from + half);
        for (int k = 0; k < WIDTH; k += 4) {
            Vec<float> cosines = load16(c + k), sines = load16(s + k);
            for (int j = 0; j < 4; ++j) {
                float a = to_float(low[k + j]), b = to_float(high[k + j]);
                low[k + j] = from_float<T>(a * cosines[j] - b * sines[j]);
                high[k + j] = from_float<T>(b * cosines[j] + a * sines[j]);
            }
        }
        store16(to, low);
        store16(to + half, high);
    }
}
