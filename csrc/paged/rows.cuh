// Attention of 16 query rows in the registers of one warp, over tiles of keys and values in shared
// memory, by tensor cores and with an online softmax (sm_80 on).
//
// A row is a query head of a query. Lane l holds parts of rows l / 4 and l / 4 + 8, in the layout
// that mma.cuh describes. A tile of TILE keys is [TILE, HEAD_DIM], with its 16-byte chunks where
// `chunk_at` says; a tile of values likewise. Weights are rounded to T before they are multiplied
// by the values; everything else is float32.
#pragma once

#include "mma.cuh"

constexpr int CHUNK = 8;  // elements in 16 bytes

// The place of a chunk of a row in a tile, in elements. 8 adjacent chunks of a row, or the same
// chunk of 8 successive rows, lie in different banks.
template <int HEAD_DIM>
__device__ __forceinline__ int chunk_at(int row, int chunk) {
    return (row * (HEAD_DIM / CHUNK) + (chunk ^ row % 8)) * CHUNK;
}

template <typename T, int HEAD_DIM>
struct Rows {
    uint32_t q[HEAD_DIM / 16][4];
    float maximum[2];  // of the scaled scores so far, times log2(e)
    float total[2];    // sum of this lane's weights relative to the maximum; of all after finish()
    float out[HEAD_DIM / 8][4];

    // Load queries and reset the state. `row_at(row)` is the address of a row, or null for zeros.
    template <typename RowAt>
    __device__ __forceinline__ void begin(RowAt row_at) {
        int group = threadIdx.x % WARP / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            const T* row = row_at(group + below * 8);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i)
                q[i / 2][i % 2 * 2 + below] =
                    row ? *reinterpret_cast<const uint32_t*>(row + i * 8 + pair) : 0;
            maximum[below] = LOWEST;
            total[below] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) out[i][j] = 0.0f;
    }

    // Include a tile, of which the first `count` keys are seen. `scale` is positive and includes
    // the factor log2(e). If `lower` is false, rows 8 to 15 are padding and their weights, half of
    // all, are not computed.
    template <int TILE>
    __device__ __forceinline__ void attend(const T* keys, const T* values, int count, float scale,
                                           bool lower = true) {
        int lane = threadIdx.x % WARP;
        float scores[TILE / 8][4] = {};
#pragma unroll
        for (int step = 0; step < HEAD_DIM / 16; ++step)
#pragma unroll
            for (int i = 0; i < TILE / 16; ++i) {
                uint32_t k[4];
                int row = i * 16 + lane / 16 * 8 + lane % 8;
                ldmatrix_x4(k, keys + chunk_at<HEAD_DIM>(row, step * 2 + lane / 8 % 2));
                mma_16x8x16<T>(scores[i * 2], q[step], k[0], k[1]);
                mma_16x8x16<T>(scores[i * 2 + 1], q[step], k[2], k[3]);
            }
        if (count < TILE) {
#pragma unroll
            for (int i = 0; i < TILE / 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (i * 8 + lane % 4 * 2 + j % 2 >= count) scores[i][j] = -INFINITY;
        }
        soften<TILE>(scores, 0, scale);
        if (lower) soften<TILE>(scores, 1, scale);
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            uint32_t weights[4];  // mma.sync left the scores where it expects operand A
#pragma unroll
            for (int j = 0; j < 4; ++j)
                weights[j] = pack2<T>(scores[i * 2 + j / 2][j % 2 * 2],
                                      scores[i * 2 + j / 2][j % 2 * 2 + 1]);
#pragma unroll
            for (int j = 0; j < HEAD_DIM / 16; ++j) {
                uint32_t v[4];
                int chunk = j * 2 + lane / 16;
                ldmatrix_x4_trans(v, values + chunk_at<HEAD_DIM>(i * 16 + lane % 16, chunk));
                mma_16x8x16<T>(out[j * 2], weights, v[0], v[1]);
                mma_16x8x16<T>(out[j * 2 + 1], weights, v[2], v[3]);
            }
        }
    }

    // Turn the scores of row l / 4, or of the row 8 below, into weights relative to the maximum.
    template <int TILE>
    __device__ __forceinline__ void soften(float (&scores)[TILE / 8][4], int below, float scale) {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < TILE / 4; ++i)
            largest = fmaxf(largest, scores[i / 2][below * 2 + i % 2]);
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        largest = fmaxf(maximum[below], largest * scale);
        if (__any_sync(ALL_LANES, largest > maximum[below])) {  // seldom true after the first tiles
            float rescale = exp2_approx(maximum[below] - largest);
            total[below] *= rescale;
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 4; ++i) out[i / 2][below * 2 + i % 2] *= rescale;
        }
        maximum[below] = largest;
#pragma unroll
        for (int i = 0; i < TILE / 4; ++i) {
            float& score = scores[i / 2][below * 2 + i % 2];
            score = exp2_approx(score * scale - largest);
            total[below] += score;
        }
    }

    // Divide by the sum of the weights. Then out and lse() are the result for the keys so far.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            float& sum = total[below];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 4; ++i) out[i / 2][below * 2 + i % 2] *= inverse;
        }
    }

    // Multiply the output: by the scale that the values were stored with.
    __device__ __forceinline__ void scale_by(float factor) {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) out[i / 4][i % 4] *= factor;
    }

    // The natural log-sum-exp of row l / 4, or of the row 8 below; -inf if it saw no key.
    __device__ __forceinline__ float lse(int below) const {
        return total[below] > 0.0f ? (maximum[below] + log2f(total[below])) * LN_2 : -INFINITY;
    }

    // Store row l / 4, or the row 8 below, in float32 or rounded to T. All lanes must call it.
    template <typename To>
    __device__ __forceinline__ void store(To* row, int below) const {
        int pair = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            float low = out[i][below * 2], high = out[i][below * 2 + 1];
            if constexpr (sizeof(To) == 4) {
                *reinterpret_cast<float2*>(row + i * 8 + pair) = make_float2(low, high);
            } else {
                *reinterpret_cast<uint32_t*>(row + i * 8 + pair) = pack2<T>(low, high);
            }
        }
    }
};
