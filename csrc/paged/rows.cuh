// Attention of 16 rows of queries in the registers of one warp, over tiles of keys and values in
// shared memory, by tensor cores and with an online softmax (sm_80 on).
//
// A row is a query head of a query. Lane l holds parts of rows l / 4 and l / 4 + 8, as mma.cuh
// lays them out. A tile of TILE keys is [TILE, HEAD_DIM], its 16-byte pieces where `piece_at` says;
// values the same. Weights are rounded to T before they meet the values; all else is float32.
#pragma once

#include "mma.cuh"

constexpr int PIECE = 8;          // elements in 16 bytes
constexpr float LOWEST = -1e30f;  // a maximum before any score: finite, since -inf - -inf is NaN
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// Where a piece of a row lies in a tile, in elements. 8 pieces in a column or in a row lie in
// different banks.
template <int HEAD_DIM>
__device__ __forceinline__ int piece_at(int row, int piece) {
    return (row * (HEAD_DIM / PIECE) + (piece ^ row % 8)) * PIECE;
}

// MANY × 16 rows, in tiles of 16: what is read of keys and values serves all of them.
template <typename T, int HEAD_DIM, int MANY = 1>
struct Rows {
    uint32_t q[MANY][HEAD_DIM / 16][4];
    float maximum[MANY][2];  // of the scaled scores so far, times log2(e)
    float total[MANY][2];    // of this lane's weights, relative to the maximum; of all after finish
    float out[MANY][HEAD_DIM / 8][4];

    // Take queries, and forget all keys. `row_at(row)` is the address of a row, or null: zeros.
    template <typename RowAt>
    __device__ __forceinline__ void begin(RowAt row_at) {
        int group = threadIdx.x % WARP / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < MANY; ++m) {
#pragma unroll
            for (int below = 0; below < 2; ++below) {
                const T* row = row_at(m * 16 + below * 8 + group);
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 8; ++i)
                    q[m][i / 2][i % 2 * 2 + below] =
                        row ? *reinterpret_cast<const uint32_t*>(row + i * 8 + pair) : 0;
                maximum[m][below] = LOWEST;
                total[m][below] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) out[m][i][j] = 0.0f;
        }
    }

    // Take in a tile, of which the first `count` keys are seen. `scale` is positive, and includes
    // log2(e).
    template <int TILE>
    __device__ __forceinline__ void attend(const T* keys, const T* values, int count, float scale) {
        int lane = threadIdx.x % WARP;
        float scores[MANY][TILE / 8][4] = {};
#pragma unroll
        for (int step = 0; step < HEAD_DIM / 16; ++step)
#pragma unroll
            for (int i = 0; i < TILE / 16; ++i) {
                uint32_t k[4];
                int row = i * 16 + lane / 16 * 8 + lane % 8;
                ldmatrix_x4(k, keys + piece_at<HEAD_DIM>(row, step * 2 + lane / 8 % 2));
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int m = 0; m < MANY; ++m)
                        mma_16x8x16<T>(scores[m][i * 2 + n], q[m][step], k[n * 2], k[n * 2 + 1]);
            }

        uint32_t weights[MANY][TILE / 16][4];  // laid out as scores are, and as factors have to be
#pragma unroll
        for (int m = 0; m < MANY; ++m) {
            if (count < TILE) {
#pragma unroll
                for (int i = 0; i < TILE / 8; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        if (i * 8 + lane % 4 * 2 + j % 2 >= count) scores[m][i][j] = -INFINITY;
            }
#pragma unroll
            for (int below = 0; below < 2; ++below) soften<TILE>(scores[m], m, below, scale);
#pragma unroll
            for (int i = 0; i < TILE / 4; ++i)
                weights[m][i / 4][i % 4] =
                    pack2<T>(scores[m][i / 2][i % 2 * 2], scores[m][i / 2][i % 2 * 2 + 1]);
        }

#pragma unroll
        for (int i = 0; i < TILE / 16; ++i)
#pragma unroll
            for (int j = 0; j < HEAD_DIM / 16; ++j) {
                uint32_t v[4];
                int piece = j * 2 + lane / 16;
                ldmatrix_x4_trans(v, values + piece_at<HEAD_DIM>(i * 16 + lane % 16, piece));
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int m = 0; m < MANY; ++m)
                        mma_16x8x16<T>(out[m][j * 2 + n], weights[m][i], v[n * 2], v[n * 2 + 1]);
            }
    }

    // Scores of a row to weights, relative to the largest score so far.
    template <int TILE>
    __device__ __forceinline__ void soften(float (&scores)[TILE / 8][4], int m, int below,
                                           float scale) {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < TILE / 4; ++i)
            largest = fmaxf(largest, scores[i / 2][below * 2 + i % 2]);
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        largest = fmaxf(maximum[m][below], largest * scale);
        float rescale = exp2_approx(maximum[m][below] - largest);
        maximum[m][below] = largest;
        total[m][below] *= rescale;
#pragma unroll
        for (int i = 0; i < TILE / 4; ++i) {
            float& score = scores[i / 2][below * 2 + i % 2];
            score = exp2_approx(score * scale - largest);
            total[m][below] += score;
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 4; ++i) out[m][i / 2][below * 2 + i % 2] *= rescale;
    }

    // Divide by the sum of the weights. Afterwards out, and lse(), are those of the keys so far.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int m = 0; m < MANY; ++m)
#pragma unroll
            for (int below = 0; below < 2; ++below) {
                float& sum = total[m][below];
                sum += __shfl_xor_sync(ALL_LANES, sum, 1);
                sum += __shfl_xor_sync(ALL_LANES, sum, 2);
                float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 4; ++i) out[m][i / 2][below * 2 + i % 2] *= inverse;
            }
    }

    // The natural log-sum-exp of row 16 m + 8 below + l / 4; -inf if it saw nothing.
    __device__ __forceinline__ float lse(int m, int below) const {
        float sum = total[m][below];
        return sum > 0.0f ? (maximum[m][below] + log2f(sum)) * LN_2 : -INFINITY;
    }

    // Store that row, in float32 or rounded to T; its lanes together.
    template <typename To>
    __device__ __forceinline__ void store(To* row, int m, int below) const {
        int pair = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            float low = out[m][i][below * 2], high = out[m][i][below * 2 + 1];
            if constexpr (sizeof(To) == 4) {
                *reinterpret_cast<float2*>(row + i * 8 + pair) = make_float2(low, high);
            } else {
                *reinterpret_cast<uint32_t*>(row + i * 8 + pair) = pack2<T>(low, high);
            }
        }
    }
};
