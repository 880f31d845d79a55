// Inline PTX in the forms in which kernels use it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define CP_ASYNC(to, from, bytes)                                         \
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(to), "l"(from), \
                 "n"(bytes))
#define COMMIT asm volatile("cp.async.commit_group;\n" ::)
#define WAIT(pending) asm volatile("cp.async.wait_group %0;\n" ::"n"(pending))

__device__ __forceinline__ uint32_t lane_id() {
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// <<<1, 64, 0>>>
__global__ void integers(const int* a, const int* b, int* out) {
    int i = threadIdx.x, x = a[i], y = b[i], r[16];
    asm("add.s32 %0, %1, %2;" : "=r"(r[0]) : "r"(x), "r"(y));
    asm("mad.lo.s32 %0, %1, %2, 7;" : "=r"(r[1]) : "r"(x), "r"(y));
    asm("mul.hi.s32 %0, %1, %2;" : "=r"(r[2]) : "r"(x), "r"(y));
    asm("shl.b32 %0, %1, %2;" : "=r"(r[3]) : "r"(x), "r"(i));
    asm("shr.s32 %0, %1, %2;" : "=r"(r[4]) : "r"(x), "r"(i));
    asm("shr.u32 %0, %1, %2;" : "=r"(r[5]) : "r"(x), "r"(i));
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(r[6]) : "r"(x), "r"(y), "r"(i * 77777));
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(r[7]) : "r"(x), "r"(y));
    asm("bfe.s32 %0, %1, %2, 5;" : "=r"(r[8]) : "r"(x), "r"(i % 28));
    asm("bfi.b32 %0, %1, %2, %3, 9;" : "=r"(r[9]) : "r"(x), "r"(y), "r"(i % 24));
    asm("popc.b32 %0, %1;" : "=r"(r[10]) : "r"(x));
    asm("{\n\t.reg .pred p;\n\t.reg .b32 t;\n\t"
        "setp.lt.s32 p, %1, %2;\n\t"
        "selp.b32 t, %1, %2, p;\n\t"
        "@!p add.s32 t, t, 1000;\n\t"
        "mov.b32 %0, t;\n\t}"
        : "=r"(r[11]) : "r"(x), "r"(y));
    asm volatile("{ .reg .u32 n; .reg .pred more; mov.u32 n, 0;\n"
                 "AGAIN_%=: add.u32 n, n, 3; setp.lo.u32 more, n, %1; @more bra AGAIN_%=;\n"
                 "mov.u32 %0, n; }" : "=r"(r[12]) : "r"(i));
    asm("brev.b32 %0, %1;" : "=r"(r[13]) : "r"(x));
    asm("bfind.u32 %0, %1;" : "=r"(r[14]) : "r"(x));
    asm("{ .reg .b16 low, high; .reg .b64 both; mov.b32 {low, high}, %1; mov.b32 %0, {high, low};\n"
        "  mov.b64 both, {%0, %2}; mov.b64 {%0, _}, both; }"
        : "=r"(r[15]) : "r"(x), "r"(y));
    r[15] = (unsigned)r[15] >> 16 == (x & 0xffff) && (r[15] & 0xffff) == (unsigned)x >> 16
                ? (int)lane_id() : -1;
    asm volatile("" ::: "memory");
    for (int k = 0; k < 16; ++k) out[k * 64 + i] = r[k];
}

// <<<1, 64, 0>>>
__global__ void conversions(const float* x, float* out, int* whole) {
    int i = threadIdx.x;
    float a = x[i], b = x[63 - i];
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole[i]) : "f"(a));
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(whole[64 + i]) : "f"(a));
    asm("cvt.rmi.u32.f32 %0, %1;" : "=r"(whole[128 + i]) : "f"(a));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(whole[192 + i]) : "f"(a), "f"(b));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(whole[256 + i]) : "f"(a), "f"(b));
    asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(((short*)whole)[640 + i]) : "f"(a));
    asm("fma.rn.f32 %0, %1, %2, 0f3F800000;" : "=f"(out[i]) : "f"(a), "f"(b));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out[64 + i]) : "f"(a));
    asm("max.f32 %0, %1, %2;" : "=f"(out[128 + i]) : "f"(a), "f"(b));
    uint32_t halves = whole[192 + i];
    asm("fma.rn.f16x2 %0, %0, %0, %0;" : "+r"(halves));
    whole[384 + i] = halves;
}

// <<<1, 8, 0>>>
__global__ void edges(const float* x, int* out, short* halves) {
    int i = threadIdx.x, n = i * 100 - 200;
    float a = x[i];
    asm("{ .reg .pred p; setp.ne.f32 p, %1, %1; selp.s32 %0, 1, 0, p; }\n"
        "{ .reg .pred p; setp.neu.f32 p, %1, %1; @p add.s32 %0, %0, 2; }" : "=r"(out[i]) : "f"(a));
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(out[8 + i]) : "r"(n));
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(out[16 + i]) : "r"(n));
    asm("cvt.rp.f16.f32 %0, %1;" : "=h"(halves[i]) : "f"(a));
    asm("cvt.rm.f16.f32 %0, %1;" : "=h"(halves[8 + i]) : "f"(a));
}

// <<<2, 32, 0>>>
__global__ void memory(const float4* x, float* out, unsigned long long* total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x + i));
    asm volatile("st.global.cs.v2.f32 [%0], {%1, %2};" ::"l"(out + 4 * i), "f"(v.w), "f"(v.z)
                 : "memory");
    asm volatile("st.global.f32 [%0 + 8], %1;" ::"l"(out + 4 * i), "f"(v.y) : "memory");
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p st.global.f32 [%0+12], %1; }"
                 ::"l"(out + 4 * i), "f"(v.x), "r"(i), "r"(n) : "memory");
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(total), "l"((unsigned long long)i));
    uint32_t other, inside;
    asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 5, 0x1f, 0xffffffff;\n"
                 "  selp.u32 %1, 1, 0, p; }" : "=r"(other), "=r"(inside) : "r"(i));
    if (other != i + (inside ? 5 : 0)) __trap();
}

// <<<1, 64, 0>>>
__global__ void copies(const float4* x, float4* out, int n) {
    __shared__ __align__(16) float4 staged[2][64];
    uint32_t to = (uint32_t)__cvta_generic_to_shared(&staged[0][threadIdx.x]);
    CP_ASYNC(to, x + threadIdx.x, 16);
    COMMIT;
    int bytes = threadIdx.x < n ? 16 : 0;
    asm volatile("{ .reg .b32 n; mov.b32 n, %2; cp.async.ca.shared.global [%0], [%1], 16, n; }\n"
                 ::"r"(to + 64 * 16), "l"(x + 64 + (bytes ? threadIdx.x : 0)), "r"(bytes));
    COMMIT;
    WAIT(1);
    __syncthreads();
    out[threadIdx.x] = staged[0][63 - threadIdx.x];
    WAIT(0);
    __syncthreads();
    out[64 + threadIdx.x] = staged[1][63 - threadIdx.x];
}

// c = a b for one tile of 16 × 8, with b stored row by row.
template <typename T, typename Text>
__device__ void tile(const T* a, const T* b, float* c, Text multiply) {
    __shared__ __align__(16) T as[16 * 16], bs[16 * 8];
    int lane = lane_id();
    for (int i = lane; i < 256; i += 32) as[i] = a[i];
    for (int i = lane; i < 128; i += 32) bs[i] = b[i];
    __syncwarp();
    uint32_t ra[4], rb[2];
    uint32_t row = (uint32_t)__cvta_generic_to_shared(&as[lane % 16 * 16 + lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(row));
    row = (uint32_t)__cvta_generic_to_shared(&bs[lane % 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(rb[0]), "=r"(rb[1]) : "r"(row));
    float d[4] = {0, 0, 0, 0};
    multiply(d, ra, rb);
    int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

// <<<1, 32, 0>>>
__global__ void product(const __half* a, const __half* b, const __nv_bfloat16* a16,
                        const __nv_bfloat16* b16, float* c, float* c16) {
    tile(a, b, c, [](float (&d)[4], uint32_t (&ra)[4], uint32_t (&rb)[2]) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]),
                       "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
    });
    tile(a16, b16, c16, [](float (&d)[4], uint32_t (&ra)[4], uint32_t (&rb)[2]) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    });
}

// Other shapes and types, straight from memory: a is 16 × k, b is 8 × k (column by column).
// <<<1, 32, 0>>>
__global__ void other_products(const float* a, const float* b, float* c, const signed char* a8,
                               const signed char* b8, int* c8, const __half* ah, const __half* bh,
                               __half* ch) {
    int lane = lane_id(), group = lane / 4, member = lane % 4;
    const uint32_t *x = (const uint32_t*)a, *y = (const uint32_t*)b;
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[group * 8 + member]), "r"(x[(group + 8) * 8 + member]),
                   "r"(x[group * 8 + member + 4]), "r"(x[(group + 8) * 8 + member + 4]),
                   "r"(y[group * 8 + member]), "r"(y[group * 8 + member + 4]));
    for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + member * 2 + i % 2] = d[i];
    x = (const uint32_t*)a8, y = (const uint32_t*)b8;
    int e[4] = {1, 2, 3, 4};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
                 : "r"(x[group * 8 + member]), "r"(x[(group + 8) * 8 + member]),
                   "r"(x[group * 8 + member + 4]), "r"(x[(group + 8) * 8 + member + 4]),
                   "r"(y[group * 8 + member]), "r"(y[group * 8 + member + 4]));
    for (int i = 0; i < 4; ++i) c8[(group + i / 2 * 8) * 8 + member * 2 + i % 2] = e[i] - i - 1;
    x = (const uint32_t*)ah, y = (const uint32_t*)bh;
    uint32_t h[2] = {};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
                 : "+r"(h[0]), "+r"(h[1])
                 : "r"(x[group * 4 + member]), "r"(x[(group + 8) * 4 + member]),
                   "r"(y[group * 4 + member]));
    for (int i = 0; i < 2; ++i) ((uint32_t*)ch)[(group + i * 8) * 4 + member] = h[i];
}
