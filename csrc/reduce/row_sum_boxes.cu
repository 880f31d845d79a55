// Row sums through boxes that TMA copies: one thread asks, 64 others add.
//
// Needs     sm_90 (TMA, mbarrier)
// Computes  out[r] = Σ x[r][c] over c, in float32
// Shapes    x [rows, columns], float16 or bfloat16; out [rows]; columns must be a multiple of 8 and
//           x aligned to 16 bytes, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block: ROWS rows; each of its first ROWS threads: one of them; the first
//           thread of the last warp: the copies of all
// Moves     every element once, in boxes of ROWS × COLUMNS: rows × columns × 2 bytes
// Compiled  32 registers per thread, none spilled (ptxas 13.0)
// Oracle    x.double().sum(-1), in tests/test_kernels.py
// Idea      STAGES boxes have places in a ring. The mbarrier `full` of a place tells that its box has
//           arrived, `empty` that all threads have added it. TMA swizzles the box, so that 8 threads
//           that read 16 bytes of 8 rows read from all banks.
#include "hopper.cuh"

constexpr int ROWS = 64, COLUMNS = 64;  // of a box; a row of it has 128 bytes
constexpr int BYTES = ROWS * COLUMNS * 2;
constexpr int STAGES = 4;
constexpr int THREADS = ROWS + WARP;  // the last warp asks for boxes

// Where TMA, with Swizzle::SPAN_128, puts the byte of a box that has this number by rows.
__device__ __forceinline__ int swizzled(int byte) { return byte ^ (byte >> 7 & 7) << 4; }

template <typename T>
__global__ void __launch_bounds__(THREADS)
    row_sum_boxes(const __grid_constant__ CUtensorMap map, float* out, int rows, int columns) {
    __shared__ __align__(1024) unsigned char places[STAGES][BYTES];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int first_row = blockIdx.x * ROWS, boxes = ceil_div(columns, COLUMNS);
    // exercise 24.4 begin: how many threads arrive per phase of full[stage] and of empty[stage]
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], ROWS);
        }
    }
    // exercise 24.4 end
    if (threadIdx.x == 0) fence_mbarrier_init();
    __syncthreads();

    auto ask = [&](int box, int stage) {  // one thread has TMA copy a box to a place
        // exercise 24.2 begin: arrive at full[stage], and start the copy
        mbarrier_arrive_expect(&full[stage], BYTES);
        tma_load(places[stage], map, &full[stage], box * COLUMNS, first_row);
        // exercise 24.2 end
    };
    float sum = 0.0f;
    auto add = [&](int stage) {  // the thread's row of the box in a place
        for (int chunk = 0; chunk < COLUMNS / Vec<T>::SIZE; ++chunk) {
            int byte = swizzled(threadIdx.x * 128 + chunk * 16);
            Vec<T> held = load16(reinterpret_cast<const T*>(places[stage] + byte));
            for (int i = 0; i < Vec<T>::SIZE; ++i) sum += to_float(held[i]);
        }
    };
    // exercise 24.4 begin: thread ROWS asks for all boxes, threads 0 to ROWS - 1 add them
    if (threadIdx.x == ROWS) {
        for (int box = 0; box < boxes; ++box) {
            int stage = box % STAGES;
            mbarrier_wait(&empty[stage], box / STAGES % 2 ^ 1);  // the first time immediately
            ask(box, stage);
        }
    }
    if (threadIdx.x < ROWS) {
        for (int box = 0; box < boxes; ++box) {
            int stage = box % STAGES;
            mbarrier_wait(&full[stage], box / STAGES % 2);
            add(stage);
            mbarrier_arrive(&empty[stage]);
        }
    }
    // exercise 24.4 end
    int row = first_row + threadIdx.x;
    if (threadIdx.x < ROWS && row < rows) out[row] = sum;
}

template <typename T>
static cudaError_t launch(const T* x, float* out, int rows, int columns, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (columns == 0) return cudaMemsetAsync(out, 0, rows * sizeof(float), stream);
    if (columns % Vec<T>::SIZE || !aligned16(x)) return cudaErrorMisalignedAddress;
    CUtensorMap map = {};
    cudaError_t error = cudaErrorInvalidValue;
    // exercise 24.2 begin: set `error` to what make_tensor_map returns for x
    size_t sizes[] = {static_cast<size_t>(columns), static_cast<size_t>(rows)};
    size_t stride = columns;
    int box[] = {COLUMNS, ROWS};
    error = make_tensor_map(&map, x, sizes, &stride, box, Swizzle::SPAN_128);
    // exercise 24.2 end
    if (error != cudaSuccess) return error;
    row_sum_boxes<T><<<ceil_div(rows, ROWS), THREADS, 0, stream>>>(map, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t row_sum_boxes_f16(const __half* x, float* out, int rows, int columns,
                                         cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
extern "C" cudaError_t row_sum_boxes_bf16(const __nv_bfloat16* x, float* out, int rows,
                                          int columns, cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
