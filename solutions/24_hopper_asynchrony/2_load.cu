// Solution of exercise 24.2: One thread requests a box from TMA.
//
// The kernel multiplies a matrix x by a vector w. Write the two ends of its copies by TMA. On the
// host, describe x to the driver: make a tensor map of a matrix of `rows` rows and `columns`
// columns, for boxes of ROWS rows and COLUMNS columns that arrive swizzled, and keep the error in
// `error`; that of w is given. In the kernel, one thread calls `ask(box, stage)`: arrive at
// `full[stage]`, tell it how many bytes will come, and start two copies: the box to `places[stage]`,
// its part of w to `weights[stage]`. The box has the ROWS rows from `first_row` on, and the COLUMNS
// columns from box × COLUMNS on. Neither end needs a bounds check.
//
// Generated from row_product in csrc/reduce/row_product.cu.
// Edit it there, and run `python -m yaie.course build`.

// A matrix times a vector through boxes that TMA copies: one thread asks, 64 others multiply and add.
//
// Needs     sm_90a (TMA, mbarrier)
// Computes  out[r] = Σ x[r][c] w[c] over c, in float32
// Shapes    x [rows, columns] and w [columns], float16 or bfloat16; out [rows]; columns must be a
//           multiple of 8, x and w aligned to 16 bytes, or the launcher returns
//           cudaErrorMisalignedAddress
// Owns      each thread block: ROWS rows; each of its first ROWS threads: one of them; the first
//           thread of the last warp: the copies of all
// Moves     x once, in boxes of ROWS × COLUMNS: rows × columns × 2 bytes; w once per thread block
// Compiled  at most 42 registers per thread, none spilled (ptxas 13.0)
// Oracle    x.double() @ w.double(), in tests/test_kernels.py
// Idea      STAGES boxes have places in a ring. The mbarrier `full` of a place tells that its box has
//           arrived, `empty` that all threads have added it. TMA swizzles the box, so that 8 threads
//           that read 16 bytes of 8 rows read from all banks, and fills in zeros past the edges.
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
        mbarrier_arrive_expect(&full[stage], BOX_BYTES + WEIGHT_BYTES);
        tma_load(places[stage], map, &full[stage], box * COLUMNS, first_row);
        tma_load(weights[stage], w_map, &full[stage], box * COLUMNS);
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
    size_t sizes[] = {static_cast<size_t>(columns), static_cast<size_t>(rows)};
    size_t stride = columns;
    int box[] = {COLUMNS, ROWS};
    error = make_tensor_map(&map, x, sizes, &stride, box, Swizzle::SPAN_128);
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
