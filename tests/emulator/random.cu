// cuRAND's Philox4x32-10, in all the ways in which its numbers are taken.
#include <curand_kernel.h>

// <<<1, n, 0>>>
__global__ void draw(unsigned long long seed, unsigned long long first, int* bits, float* uniform,
                     float* normal, double* wide, int n) {
    int i = threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, (1ull << 31) * i, first, &state);
    for (int k = 0; k < 4; ++k) bits[i * 9 + k] = curand(&state);
    bits[i * 9 + 4] = curand(&state);
    uint4 four = curand4(&state);
    bits[i * 9 + 5] = four.x;
    bits[i * 9 + 6] = four.y;
    bits[i * 9 + 7] = four.z;
    bits[i * 9 + 8] = four.w;
    float4 u = curand_uniform4(&state);
    for (int k = 0; k < 4; ++k) uniform[i * 9 + k] = (&u.x)[k];
    for (int k = 4; k < 9; ++k) uniform[i * 9 + k] = curand_uniform(&state);
    float4 g = curand_normal4(&state);
    for (int k = 0; k < 4; ++k) normal[i * 9 + k] = (&g.x)[k];
    float2 pair = curand_normal2(&state);
    normal[i * 9 + 4] = pair.x;
    normal[i * 9 + 5] = pair.y;
    for (int k = 6; k < 9; ++k) normal[i * 9 + k] = curand_normal(&state);
    wide[i * 8] = curand_uniform_double(&state);
    double2 two = curand_uniform2_double(&state);
    wide[i * 8 + 1] = two.x;
    wide[i * 8 + 2] = two.y;
    for (int k = 3; k < 6; ++k) wide[i * 8 + k] = curand_normal_double(&state);
    two = curand_normal2_double(&state);
    wide[i * 8 + 6] = two.x;
    wide[i * 8 + 7] = two.y;
    if (curand_normal(&state) != normal[i * 9 + 8]) return;  // the second of the last pair
}
