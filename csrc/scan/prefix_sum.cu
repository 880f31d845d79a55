// Prefix sum, rung 2 of 2: warp shuffles and any number of thread blocks; the kernels that the
// engine uses.
//
// Computes  out[i] = x[0] + … + x[i - 1] for i = 0 … n: out[0] is 0 and out[n] is the sum of all
// Shapes    x [n] and out [n + 1], int32; starts [number of tiles + 1], workspace
// Owns      each thread block: a tile of 4096 elements; each thread: 4 adjacent elements of each
//           1024
// Moves     4 × (2 × n + 1) bytes; with more than one thread block x is read twice, 4 × (3 × n + 1)
// Oracle    a loop in Python, in tests/test_scan.py
// Idea      a lane gets another lane's sum by a shuffle: five shuffles scan a warp and five more
//           scan the sums of the warps, so there are two barriers instead of two per step. Thread
//           blocks cannot wait for each other within a launch, so there are three launches: the sum
//           of each tile, the scan of these sums, and the scan of each tile from its start.
// Source    Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016,
//           does it in one launch, with thread blocks that wait for each other.
#include "scan/scan.cuh"

constexpr int THREADS = 256;
constexpr int ITEMS = Vec<int>::SIZE;     // per thread and slice
constexpr int SLICE = THREADS * ITEMS;    // elements that a thread block loads together
constexpr int TILE = 4 * SLICE;           // elements that a thread block owns
constexpr int ALONE = 2 * TILE;           // up to here one thread block is as fast as 3 launches

// This thread's elements of the slice at `first`, and 0 beyond n; in one 16-byte load if `wide`.
static __device__ Vec<int> load_items(const int* x, int first, int n, bool wide) {
    int i = first + threadIdx.x * ITEMS;
    if (wide && i + ITEMS <= n) return load16(x + i);
    Vec<int> items;
    for (int k = 0; k < ITEMS; ++k) items[k] = i + k < n ? x[i + k] : 0;
    return items;
}

// A thread block scans x[first] … x[end - 1]: out[i] = sum + x[first] + … + x[i - 1]. Returns `sum`
// plus all of these elements. x and out may be the same.
static __device__ int scan_range(const int* x, int* out, int first, int end, int sum, bool wide) {
    for (; first < end; first += SLICE) {
        Vec<int> items = load_items(x, first, end, wide);
        int own = 0, total;
        for (int k = 0; k < ITEMS; ++k) own += items[k];
        int before = sum + block_scan(own, total) - own;
        for (int k = 0; k < ITEMS; ++k) {
            int value = items[k];
            items[k] = before;
            before += value;
        }
        int i = first + threadIdx.x * ITEMS;
        if (wide && i + ITEMS <= end) {
            store16(out + i, items);
        } else {
            for (int k = 0; k < ITEMS && i + k < end; ++k) out[i + k] = items[k];
        }
        sum += total;
    }
    return sum;
}

__global__ void scan_alone(const int* x, int* out, int n, bool wide) {
    int sum = scan_range(x, out, 0, n, 0, wide);
    if (threadIdx.x == 0) out[n] = sum;
}

__global__ void tile_sums(const int* x, int* sums, int n, bool wide) {
    int first = blockIdx.x * TILE, own = 0, total;
    for (int slice = first; slice < min(first + TILE, n); slice += SLICE) {
        Vec<int> items = load_items(x, slice, n, wide);
        for (int k = 0; k < ITEMS; ++k) own += items[k];
    }
    block_scan(own, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void scan_tiles(const int* x, const int* starts, int* out, int n, bool wide) {
    int first = blockIdx.x * TILE, end = min(first + TILE, n);
    int sum = scan_range(x, out, first, end, starts[blockIdx.x], wide);
    if (end == n && threadIdx.x == 0) out[n] = sum;
}

// n is at most 2^31 - 2^16.
extern "C" cudaError_t prefix_sum_i32(const int* x, int* out, int* starts, int n,
                                      cudaStream_t stream) {
    bool wide = aligned16(x, out);
    if (n <= ALONE) {
        scan_alone<<<1, THREADS, 0, stream>>>(x, out, n, wide);
        return cudaGetLastError();
    }
    int tiles = ceil_div(n, TILE);
    tile_sums<<<tiles, THREADS, 0, stream>>>(x, starts, n, wide);
    scan_alone<<<1, THREADS, 0, stream>>>(starts, starts, tiles, false);
    scan_tiles<<<tiles, THREADS, 0, stream>>>(x, starts, out, n, wide);
    return cudaGetLastError();
}
