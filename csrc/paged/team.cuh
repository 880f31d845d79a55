// How the lanes of a warp share a row of the cache, and what a lane keeps of the rows it has read.
#pragma once

#include "paged/paged.cuh"

constexpr int THREADS = 128, WARPS = THREADS / WARP;  // per thread block
constexpr int PER_LANE = 8;  // elements of a row per lane
constexpr int MOST_DIM = WARP * PER_LANE;

// A warp is divided into teams of `lanes` lanes. A team reads a row of head_dim elements in chunks,
// which are 16 bytes if WIDE and one element otherwise. Adjacent lanes have adjacent chunks.
template <typename T, bool WIDE>
struct Team {
    static constexpr int SIZE = WIDE ? Vec<T>::SIZE : 1;  // elements per chunk
    static constexpr int CHUNKS = PER_LANE / SIZE;        // per lane
    int lanes, head_dim;

    __device__ int number() const { return threadIdx.x % WARP / lanes; }  // of the team in its warp
    __device__ int teams_per_warp() const { return WARP / lanes; }
    __device__ int place(int chunk) const {  // where this lane's chunk begins in the row
        return (threadIdx.x % lanes + chunk * lanes) * SIZE;
    }

    // Load this lane's elements of a row, and zeros past the end of the row.
    __device__ void load(const T* row, float (&x)[PER_LANE]) const {
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            Vec<T> vec;
            bool inside = place(chunk) < head_dim;
            if constexpr (WIDE) {
                if (inside) vec = load16(row + place(chunk));
            } else {
                if (inside) vec[0] = row[place(chunk)];
            }
#pragma unroll
            for (int i = 0; i < SIZE; ++i) x[chunk * SIZE + i] = inside ? to_float(vec[i]) : 0.0f;
        }
    }

    // The sum over the lanes of the team, in each of them. All lanes of the warp must call it.
    __device__ float sum(float value) const {
        for (int step = lanes / 2; step > 0; step /= 2)
            value += __shfl_xor_sync(ALL_LANES, value, step);
        return value;
    }
};

__device__ __forceinline__ float dot(const float (&a)[PER_LANE], const float (&b)[PER_LANE]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) sum += a[i] * b[i];
    return sum;
}

// The factor that turns sums of exp(x − from) into sums of exp(x − to); 0 for an empty sum.
__device__ __forceinline__ float rescale(float from, float to) {
    return from == -INFINITY ? 0.0f : expf(from - to);
}

// What a lane keeps per query head: the largest score so far, the sum of exponentials relative to
// it, and this lane's elements of the sum of weight × value. The first two are equal in all lanes
// of a team.
struct State {
    float best = -INFINITY, total = 0.0f;
    float sums[PER_LANE] = {};

    // Include one key.
    __device__ void add(float score, const float (&value)[PER_LANE]) {
        float larger = fmaxf(best, score);
        float before = rescale(best, larger), weight = expf(score - larger);
        best = larger;
        total = total * before + weight;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) sums[i] = sums[i] * before + weight * value[i];
    }
};

// The place of element i in shared memory: a word of padding follows every 32, so that elements 8
// apart, as in adjacent lanes, lie in different banks.
__device__ __forceinline__ int padded(int i) { return i + i / WARP; }

// Merge the states of all teams of the thread block, divide by the total, and write for each query
// head a row of `out`, head_dim elements, and an element of `lse`; zeros and −inf if no team saw a
// key. All threads must call it.
template <typename T, bool WIDE, int HEADS, typename Out>
__device__ void finish(const Team<T, WIDE>& team, const State (&states)[HEADS], int heads, Out* out,
                       float* lse) {
    __shared__ float best[HEADS][THREADS], total[HEADS][THREADS];  // per team
    __shared__ float sums[HEADS][THREADS * (PER_LANE + 1)];          // a row per team, padded
    int mine = threadIdx.x / team.lanes, teams = THREADS / team.lanes;
    int size = team.lanes * PER_LANE;  // per row
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (threadIdx.x % team.lanes == 0)
            best[h][mine] = states[h].best, total[h][mine] = states[h].total;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i)
            sums[h][padded(mine * size + team.place(i / team.SIZE) + i % team.SIZE)] =
                states[h].sums[i];
    }
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
        float larger = -INFINITY, all = 0.0f;
        for (int t = 0; t < teams; ++t) larger = fmaxf(larger, best[h][t]);
        for (int t = 0; t < teams; ++t) all += total[h][t] * rescale(best[h][t], larger);
        for (int d = threadIdx.x; d < team.head_dim; d += THREADS) {
            float sum = 0.0f;
            for (int t = 0; t < teams; ++t)
                sum += sums[h][padded(t * size + d)] * rescale(best[h][t], larger);
            out[(int64_t)h * team.head_dim + d] = from_float<Out>(all == 0.0f ? 0.0f : sum / all);
        }
        if (threadIdx.x == 0) lse[h] = larger + logf(all);
    }
}

// Lanes per row: a power of two, so that teams fill the warp.
inline int lanes_for(int head_dim) {
    int lanes = 1;
    while (lanes * PER_LANE < head_dim) lanes *= 2;
    return lanes;
}

// Whether all rows can be read 16 bytes at a time.
template <typename T>
bool wide_rows(const Paged<T>& paged) {
    return paged.head_dim % Vec<T>::SIZE == 0 && paged.q_stride % Vec<T>::SIZE == 0 &&
           aligned16(paged.q, paged.key_pool, paged.value_pool);
}
