// Exercise 24.2: One thread requests a box from TMA.
// Your parts begin in lines 70 and 97 of this file.
//
// The kernel multiplies a matrix x by a vector w. Write the two ends of its copies by TMA. On the
// host, describe x to the driver: make a tensor map of a matrix of `rows` rows and `columns`
// columns, for boxes of ROWS rows and COLUMNS columns that arrive swizzled, and keep the error in
// `error`; that of w is given. In the kernel, one thread calls `ask(box, stage)`: arrive at
// `full[stage]`, tell it how many bytes will come, and start two copies: the box to `places[stage]`,
// its part of w to `weights[stage]`. The box has the ROWS rows from `first_row` on, and the COLUMNS
// columns from box × COLUMNS on. Neither end needs a bounds check.
//
// You have
// - `x`, `rows`, `columns`: on the host: `const T*` and its sizes, `int`; a row follows the one
//   before without a gap
// - `make_tensor_map(&map, data, sizes, &stride, box, swizzle)`: describes a tensor for TMA; returns
//   a `cudaError_t`. `size_t sizes[]` and `int box[]` count elements, the innermost dimension first;
//   `size_t stride` counts the elements from one row to the next
// - `Swizzle::SPAN_128`: the swizzle of rows of 128 bytes, by which `add` reads them
// - `map`, `w_map`: the tensor maps, of x (yours) and of w, made on the host and passed to the
//   kernel
// - `error`: `cudaError_t`: what is returned, if it is not cudaSuccess, in place of a launch
// - `ROWS`, `COLUMNS`: 64 and 64, the rows and columns of a box
// - `BOX_BYTES`, `WEIGHT_BYTES`: 8,192 and 128, the bytes of a box and of its part of w
// - `box`, `stage`: in the kernel: the number of the box along a row of x; the place for it
// - `places[stage]`, `weights[stage]`: the shared memory of a stage, for a box of x and for COLUMNS
//   elements of w
// - `full[stage]`: an mbarrier for one arrival
// - `first_row`: of x: where the rows of this thread block begin
// - `mbarrier_arrive_expect(&barrier, bytes)`: has the phase wait for this many bytes more, and
//   arrives
// - `tma_load(to, map, &barrier, x, y)`: starts the copy of the box whose first element is in column
//   x and row y of the tensor, or of a vector without y; `barrier` counts its bytes
//
// In a terminal: yaie check 24.2, yaie hint 24.2, yaie reset 24.2.

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
    // exercise 24.4: how many threads arrive per phase of full[stage] and of empty[stage]
#include "../solutions/24_hopper_asynchrony/4_part_1.cuh"
    if (threadIdx.x == 0) fence_mbarrier_init();
    __syncthreads();

    auto ask = [&](int box, int stage) {  // one thread has TMA copy a box and its part of w
        // exercise 24.2 begin: arrive at full[stage], and start both copies
        // your lines
        // exercise 24.2 end
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
    // exercise 24.4: thread ROWS asks for all boxes, threads 0 to ROWS - 1 add them
#include "../solutions/24_hopper_asynchrony/4_part_2.cuh"
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
    // exercise 24.2 begin: set `error` to what make_tensor_map returns for x
    // your lines
    // exercise 24.2 end
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
