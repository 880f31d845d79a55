// Exercise 24.4: A ring of stages, waited for by parity.
// Your parts begin in lines 56 and 75 of this file.
//
// Write the ring. Shared memory holds a ring of STAGES stages, each with room for one box; box b
// goes to stage b % STAGES. Thread 0 makes two mbarriers for each stage: `full[stage]`, whose phase
// is complete when a box has arrived, and `empty[stage]`, whose phase is complete when all threads
// have added it. Then thread ROWS requests all `boxes` boxes, as far ahead as there are empty
// stages, and threads 0 to ROWS - 1 add the products of each when it has arrived. Use no other
// barrier.
//
// You have
// - `STAGES`: 4, the stages of the ring
// - `ROWS`: 64, the threads that add
// - `boxes`: an int, how many boxes there are; it may be larger or smaller than STAGES
// - `full`, `empty`: `uint64_t[STAGES]` in shared memory
// - `mbarrier_init(&barrier, arrivals)`: makes an mbarrier whose phases need this many arrivals; a
//   fence and a barrier for all follow your lines
// - `ask(box, stage)`: has TMA copy a box and its part of w to a stage, and makes the one arrival at
//   `full[stage]`, with the bytes that it expects; called by thread ROWS
// - `add(stage)`: adds the products of the thread's row of the box in that stage; called by threads
//   0 to ROWS - 1
// - `mbarrier_wait(&barrier, parity)`: waits until the phase of this parity (0 or 1), the present
//   one or the one before, is complete
// - `mbarrier_arrive(&barrier)`: one arrival at the present phase
//
// In a terminal: yaie check 24.4, yaie hint 24.4, yaie reset 24.4.

// A matrix times a vector through boxes that TMA copies: one thread asks, 64 others multiply and add.
//
// Needs     sm_90a (TMA, mbarrier)
// Computes  out[r] = Σ x[r][c] w[c] over c, in float32
// Shapes    x [rows, columns] and w [columns], float16 or bfloat16; out [rows]; columns must be a
//           multiple of 8, x and w aligned to 16 bytes, or the launcher returns
//           cudaErrorMisalignedAddress
// Owns      each thread block: ROWS rows; each of its first ROWS threads: one of them; the first
//           thread of the last warp: the copies of all
// Compiled  at most 42 registers per thread, none spilled (ptxas 13.0)
#include "hopper.cuh"

constexpr int ROWS = 64, COLUMNS = 64;  // of a box; a row of it has 128 bytes
constexpr int BOX_BYTES = ROWS * COLUMNS * 2, WEIGHT_BYTES = COLUMNS * 2;
constexpr int STAGES = 4;
constexpr int THREADS = ROWS + WARP;  // the last warp asks for boxes

// Where TMA, with Swizzle::SPAN_128, puts the byte of a box that has this number by rows.
__device__ __forceinline__ int swizzled(int byte) { return byte ^ (byte >> 7 & 7) << 4; }

template <typename T>
__global__ void __launch_bounds__(THREADS)
    row_product(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap w_map,
                float* out, int rows, int columns) {
    __shared__ __align__(1024) unsigned char places[STAGES][BOX_BYTES];
    __shared__ __align__(128) T weights[STAGES][COLUMNS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int first_row = blockIdx.x * ROWS, boxes = ceil_div(columns, COLUMNS);
    // exercise 24.4 begin: how many threads arrive per phase of full[stage] and of empty[stage]
    // your lines
    // exercise 24.4 end
    if (threadIdx.x == 0) fence_mbarrier_init();
    __syncthreads();

    auto ask = [&](int box, int stage) {  // one thread has TMA copy a box and its part of w
        // exercise 24.2: arrive at full[stage], and start both copies
#include "../solutions/24_hopper_asynchrony/2_part_1.cuh"
    };
    float sum = 0.0f;
    auto add = [&](int stage) {  // the thread's row of the box in a place
        for (int chunk = 0; chunk < COLUMNS / Vec<T>::SIZE; ++chunk) {
            int byte = swizzled(threadIdx.x * 128 + chunk * 16);
            Vec<T> held = load16(reinterpret_cast<const T*>(places[stage] + byte));
            Vec<T> factor = load16(&weights[stage][chunk * Vec<T>::SIZE]);  // the same for all
            for (int i = 0; i < Vec<T>::SIZE; ++i) sum += to_float(held[i]) * to_float(factor[i]);
        }
    };
    // exercise 24.4 begin: thread ROWS asks for all boxes, threads 0 to ROWS - 1 add them
    // your lines
    // exercise 24.4 end
    int row = first_row + threadIdx.x;
    if (threadIdx.x < ROWS && row < rows) out[row] = sum;
}

template <typename T>
static cudaError_t launch(const T* x, const T* w, float* out, int rows, int columns,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (columns == 0) return cudaMemsetAsync(out, 0, rows * sizeof(float), stream);
    if (columns % Vec<T>::SIZE || !aligned16(x, w)) return cudaErrorMisalignedAddress;
    CUtensorMap map = {}, w_map = {};
    cudaError_t error = cudaErrorInvalidValue;
    // exercise 24.2: set `error` to what make_tensor_map returns for x
#include "../solutions/24_hopper_asynchrony/2_part_2.cuh"
    if (error != cudaSuccess) return error;
    int part[] = {COLUMNS};
    error = make_tensor_map(&w_map, w, {static_cast<size_t>(columns)}, nullptr, part, Swizzle::NONE);
    if (error != cudaSuccess) return error;
    row_product<T><<<ceil_div(rows, ROWS), THREADS, 0, stream>>>(map, w_map, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t row_product_f16(const __half* x, const __half* w, float* out, int rows,
                                       int columns, cudaStream_t stream) {
    return launch(x, w, out, rows, columns, stream);
}
extern "C" cudaError_t row_product_bf16(const __nv_bfloat16* x, const __nv_bfloat16* w, float* out,
                                        int rows, int columns, cudaStream_t stream) {
    return launch(x, w, out, rows, columns, stream);
}
