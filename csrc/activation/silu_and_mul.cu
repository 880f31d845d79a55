// SiLU and multiply, the activation between the two matrix products of a Llama MLP, rung 2 of 2:
// 16 bytes per load; the kernel that the engine uses.
//
// Computes  out[r][c] = silu(x[r][c]) × x[r][size + c], with silu(g) = g / (1 + exp(-g)),
//           in float32, rounded once
// Shapes    x [rows, 2 × size], the gates before the ups; out [rows, size]; float32, float16 or
//           bfloat16
// Owns      each thread: 16 bytes of the gates, of the ups and of out, or one element of each if
//           rows do not begin at multiples of 16; each thread block: 256 times that, across rows
// Moves     x in once and out once: 3 × rows × size × element size
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      three separate operators would move twice as many bytes. The exponential adds no time:
//           the threads compute it while other warps wait for memory.
#include "common.cuh"
#include "follow.cuh"

constexpr int THREADS = 256;

static __device__ float silu(float x) { return x / (1.0f + expf(-x)); }

template <typename T>
__global__ void silu_and_mul_wide(const T* x, T* out, int rows, int size) {
    let_next_begin();
    wait_for_last();
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * Vec<T>::SIZE;  // element of out
    if (first >= rows * size) return;
    const T* gates = x + first + (size_t)(first / size) * size;  // skip the ups of earlier rows
    Vec<T> gate = load16(gates), up = load16(gates + size);
    for (int k = 0; k < Vec<T>::SIZE; ++k)
        gate[k] = from_float<T>(silu(to_float(gate[k])) * to_float(up[k]));
    store16(out + first, gate);
}

template <typename T>
__global__ void silu_and_mul(const T* x, T* out, int rows, int size) {
    let_next_begin();
    wait_for_last();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * size) return;
    const T* gate = x + i + (size_t)(i / size) * size;
    out[i] = from_float<T>(silu(to_float(gate[0])) * to_float(gate[size]));
}

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int size, cudaStream_t stream) {
    if (rows == 0 || size == 0) return cudaSuccess;
    bool wide = size % Vec<T>::SIZE == 0 && aligned16(x, out);
    auto kernel = wide ? silu_and_mul_wide<T> : silu_and_mul<T>;
    int thread_blocks = ceil_div(rows * size, THREADS * (wide ? Vec<T>::SIZE : 1));
    return launch_behind(kernel, thread_blocks, THREADS, 0, stream, x, out, rows, size);
}

extern "C" cudaError_t silu_and_mul_f32(const float* x, float* out, int rows, int size,
                                        cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
extern "C" cudaError_t silu_and_mul_f16(const __half* x, __half* out, int rows, int size,
                                        cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
extern "C" cudaError_t silu_and_mul_bf16(const __nv_bfloat16* x, __nv_bfloat16* out, int rows,
                                         int size, cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
