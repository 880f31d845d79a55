// Random numbers without state: a bijection scrambles a counter, so any of them can be computed
// directly. Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

// 128 random bits per key and counter: Philox4x32 with 10 rounds.
__device__ __forceinline__ uint4 philox(uint2 key, uint4 counter) {
    for (int round = 0; round < 10; ++round) {
        uint64_t a = (uint64_t)counter.x * 0xD2511F53u, c = (uint64_t)counter.z * 0xCD9E8D57u;
        unsigned high_a = a >> 32, high_c = c >> 32;
        counter = make_uint4(high_c ^ counter.y ^ key.x, (unsigned)c,
                             high_a ^ counter.w ^ key.y, (unsigned)a);
        key = make_uint2(key.x + 0x9E3779B9u, key.y + 0xBB67AE85u);
    }
    return counter;
}

// 32 random bits per seed, step and token: one of the four words that token / 4 gives.
__device__ __forceinline__ unsigned random_bits(int64_t seed, int64_t step, int token) {
    uint64_t key = seed, place = step;
    uint4 words = philox(make_uint2((unsigned)key, key >> 32),
                         make_uint4(token / 4, (unsigned)place, place >> 32, 0));
    unsigned chosen[2] = {token & 1 ? words.y : words.x, token & 1 ? words.w : words.z};
    return token & 2 ? chosen[1] : chosen[0];
}
