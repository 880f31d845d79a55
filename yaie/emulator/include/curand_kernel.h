// Replaces cuRAND's device functions for the generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
// Parallel Random Numbers: As Easy as 1, 2, 3, 2011): random numbers are a function of a key, the
// seed, and of a counter, which is the place in the sequence.
#pragma once

#include "cuda_runtime.h"

struct curandStatePhilox4_32_10 {
    unsigned long long place, subsequence;  // the counter: 4 numbers each
    unsigned long long seed;
    unsigned int numbers[4];  // at that place
    unsigned int used;        // how many of them have been returned
    bool has_normal, has_normal_double;  // normal numbers come in pairs: the second one is kept
    float normal;
    double normal_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace emulator {

inline void philox_round(unsigned int (&c)[4], unsigned int key0, unsigned int key1) {
    const unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const unsigned int changed[4] = {(unsigned int)(b >> 32) ^ c[1] ^ key0, (unsigned int)b,
                                     (unsigned int)(a >> 32) ^ c[3] ^ key1, (unsigned int)a};
    memcpy(c, changed, sizeof(c));
}

EMULATOR_INLINE void philox(curandStatePhilox4_32_10_t* state) {
    const unsigned long long place = state->place, subsequence = state->subsequence;
    unsigned int key0 = (unsigned int)state->seed, key1 = (unsigned int)(state->seed >> 32);
    unsigned int c[4] = {(unsigned int)place, (unsigned int)(place >> 32),
                         (unsigned int)subsequence, (unsigned int)(subsequence >> 32)};
    for (int round = 0; round < 10; ++round) {
        philox_round(c, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) state->numbers[i] = c[i];
}

// In (0, 1], with 32 or 53 random bits.
inline float to_uniform(unsigned int x) { return x * 0x1p-32f + 0x1p-33f; }
inline double to_uniform_double(unsigned int x, unsigned int y) {
    return (x ^ ((unsigned long long)y << 21)) * 0x1p-53 + 0x1p-54;
}

inline float2 box_muller(unsigned int x, unsigned int y) {
    const float step = 2.3283064e-10f * 6.2831855f;  // of an angle, in a circle of 2^32 steps
    const float angle = fmaf((float)y, step, step / 2);
    const float radius = sqrtf(-2 * logf(to_uniform(x)));
    return {radius * sinf(angle), radius * cosf(angle)};
}
inline double2 box_muller(uint4 n) {
    const double angle = 2 * M_PI * to_uniform_double(n.z, n.w);
    const double radius = sqrt(-2 * log(to_uniform_double(n.x, n.y)));
    return {radius * sin(angle), radius * cos(angle)};
}

}  // namespace emulator

EMULATOR_INLINE void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    const unsigned long long used = state->used + n % 4, groups = n / 4 + used / 4;
    state->used = (unsigned int)(used % 4);
    state->place += groups;
    if (state->place < groups) ++state->subsequence;
    emulator::philox(state);
}
EMULATOR_INLINE void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    state->subsequence += n;
    emulator::philox(state);
}
EMULATOR_INLINE void curand_init(unsigned long long seed, unsigned long long subsequence,
                                 unsigned long long offset, curandStatePhilox4_32_10_t* state) {
    *state = {0, subsequence, seed, {}, 0, false, false, 0, 0};
    skipahead(offset, state);
}

EMULATOR_INLINE unsigned int curand(curandStatePhilox4_32_10_t* state) {
    const unsigned int number = state->numbers[state->used++];
    if (state->used == 4) skipahead(0, state);
    return number;
}
EMULATOR_INLINE uint4 curand4(curandStatePhilox4_32_10_t* state) {
    const unsigned int x = curand(state), y = curand(state), z = curand(state);
    return {x, y, z, curand(state)};
}

EMULATOR_INLINE float curand_uniform(curandStatePhilox4_32_10_t* state) {
    return emulator::to_uniform(curand(state));
}
EMULATOR_INLINE float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 n = curand4(state);
    return {emulator::to_uniform(n.x), emulator::to_uniform(n.y), emulator::to_uniform(n.z),
            emulator::to_uniform(n.w)};
}
// One number makes a double alone, and two make each of a pair.
EMULATOR_INLINE double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return curand(state) * 0x1p-32 + 0x1p-32;
}
EMULATOR_INLINE double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 n = curand4(state);
    return {emulator::to_uniform_double(n.x, n.y), emulator::to_uniform_double(n.z, n.w)};
}

EMULATOR_INLINE float2 curand_normal2(curandStatePhilox4_32_10_t* state) {
    const unsigned int x = curand(state);
    return emulator::box_muller(x, curand(state));
}
EMULATOR_INLINE float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const float2 a = curand_normal2(state), b = curand_normal2(state);
    return {a.x, a.y, b.x, b.y};
}
EMULATOR_INLINE float curand_normal(curandStatePhilox4_32_10_t* state) {
    if (state->has_normal) {
        state->has_normal = false;
        return state->normal;
    }
    const float2 pair = curand_normal2(state);
    state->has_normal = true;
    state->normal = pair.y;
    return pair.x;
}
EMULATOR_INLINE double2 curand_normal2_double(curandStatePhilox4_32_10_t* state) {
    return emulator::box_muller(curand4(state));
}
EMULATOR_INLINE double curand_normal_double(curandStatePhilox4_32_10_t* state) {
    if (state->has_normal_double) {
        state->has_normal_double = false;
        return state->normal_double;
    }
    const double2 pair = curand_normal2_double(state);
    state->has_normal_double = true;
    state->normal_double = pair.y;
    return pair.x;
}

// The default generator, which is another one.
struct curandStateXORWOW {};
typedef curandStateXORWOW curandStateXORWOW_t, curandState, curandState_t;
__attribute__((error("curandState is not emulated; curandStatePhilox4_32_10_t is"))) void curand_init(
    unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStateXORWOW* state);
inline float curand_uniform(curandStateXORWOW*) { return 0; }
inline float curand_normal(curandStateXORWOW*) { return 0; }
inline unsigned int curand(curandStateXORWOW*) { return 0; }
