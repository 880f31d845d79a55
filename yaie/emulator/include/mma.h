// Replaces NVIDIA's mma.h, for tiles of 16 × 16 × 16. A lane holds 8 adjacent elements of a row.
// The layout on tensor cores is different and unspecified, so programs must not rely on either.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace emulator {

// Each lane gives 8 bytes of its fragment, and takes those of others.
template <class T>
EMULATOR_INLINE void exchange(const T* elements) {
    uint64_t held;
    memcpy(&held, elements, 8);
    emulator_gather(held, 0, 0);
}
template <class T, size_t count>
EMULATOR_INLINE void taken(T (&elements)[count], int lane) {
    const uint64_t held = emulator_gathered(lane);
    memcpy(elements, &held, 8);
}

}  // namespace emulator

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "the emulator supports tiles of 16 x 16 x 16 only");
    static constexpr int num_elements = 8;
    T x[num_elements];
};

template <class Use, class T, class Layout>
EMULATOR_INLINE void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& to, T value) {
    for (int i = 0; i < 8; ++i) to.x[i] = value;
}

template <class T>
EMULATOR_INLINE void check_tile(const T* tile, size_t stride) {
    if ((size_t)tile % 32 || stride * sizeof(T) % 16) emulator_refuse_tile(tile, stride * sizeof(T));
    __syncwarp();
}

template <class Use, class T>
EMULATOR_INLINE void load_matrix_sync(fragment<Use, 16, 16, 16, T, row_major>& to, const T* from,
                                      unsigned stride) {
    check_tile(from, stride);
    const T* row = from + threadIdx.x % 32 / 2 * stride + threadIdx.x % 2 * 8;
    for (int i = 0; i < 8; ++i) to.x[i] = row[i];
}
template <class Use, class T>
EMULATOR_INLINE void load_matrix_sync(fragment<Use, 16, 16, 16, T, col_major>& to, const T* from,
                                      unsigned stride) {
    check_tile(from, stride);
    const T* column = from + threadIdx.x % 32 / 2 + threadIdx.x % 2 * 8 * stride;
    for (int i = 0; i < 8; ++i) to.x[i] = column[i * stride];
}

template <class T>
EMULATOR_INLINE void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& from,
                                       unsigned stride, layout_t layout) {
    check_tile(to, stride);
    unsigned row = threadIdx.x % 32 / 2, column = threadIdx.x % 2 * 8;
    unsigned first = layout == mem_row_major ? row * stride + column : column * stride + row;
    unsigned step = layout == mem_row_major ? 1 : stride;
    for (int i = 0; i < 8; ++i) to[first + i * step] = from.x[i];
    __syncwarp();
}

// The products are exact, and the sum is rounded once.
template <class T, class LayoutA, class LayoutB, class C>
EMULATOR_INLINE void mma_sync(fragment<accumulator, 16, 16, 16, C>& d,
                              const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
                              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
                              const fragment<accumulator, 16, 16, 16, C>& c) {
    const int row = threadIdx.x % 32 / 2, half = threadIdx.x % 2;
    constexpr int each = 8 / sizeof(T);  // elements that are exchanged together
    double factors[16], sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = (float)c.x[i];
    for (int first = 0; first < 8; first += each) {
        T held[each];
        emulator::exchange(a.x + first);
        for (int lane = 0; lane < 2; ++lane) {
            emulator::taken(held, row * 2 + lane);
            for (int e = 0; e < each; ++e) factors[lane * 8 + first + e] = (float)held[e];
        }
    }
    for (int first = 0; first < 8; first += each) {
        T held[each];
        emulator::exchange(b.x + first);
        for (int k = 0; k < 16; ++k) {
            emulator::taken(held, k * 2 + half);
            for (int e = 0; e < each; ++e) sums[first + e] += factors[k] * (float)held[e];
        }
    }
    for (int i = 0; i < 8; ++i) d.x[i] = C((float)sums[i]);
}

}  // namespace wmma
}  // namespace nvcuda
