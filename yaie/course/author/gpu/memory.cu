// What memory costs by the way it was got: a program of its own, which prints JSON.
//
//     nvcc -O3 -std=c++17 -arch=native -o memory memory.cu && ./memory
//
// Managed memory has one address on both sides, and its pages move to the side that touches them. Here a
// kernel doubles 256 MiB that the CPU has just written: pages that fault one after another, pages
// that were sent ahead, pages that are there already, and memory from cudaMalloc. Then the price of
// getting and returning 2 MiB: from the driver, and from a pool of the driver's.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr int N = 64 << 20;  // floats: 256 MiB
constexpr int TIMES = 500;   // requests for memory
constexpr size_t PIECE = 2 << 20;

#define CHECK(call)                                                                             \
    do {                                                                                        \
        cudaError_t error = (call);                                                             \
        if (error != cudaSuccess) {                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(error));              \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

__global__ void twice(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        x[i] *= 2.0f;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double milliseconds_of_twice(float* x) {
    CHECK(cudaDeviceSynchronize());
    double begun = now();
    twice<<<1056, 256>>>(x, N);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return 1e3 * (now() - begun);
}

double milliseconds_to_write(float* x) {
    double begun = now();
    for (int i = 0; i < N; ++i) x[i] = 1.0f;
    return 1e3 * (now() - begun);
}

template <typename Body>
double microseconds_each(Body body) {
    for (int i = 0; i < 10; ++i) body();
    CHECK(cudaDeviceSynchronize());
    double begun = now();
    for (int i = 0; i < TIMES; ++i) body();
    CHECK(cudaDeviceSynchronize());
    return 1e6 * (now() - begun) / TIMES;
}

int main() {
    float *device, *managed;
    CHECK(cudaMalloc(&device, sizeof(float) * N));
    CHECK(cudaMemset(device, 0, sizeof(float) * N));
    milliseconds_of_twice(device);
    double from_malloc = milliseconds_of_twice(device);

    CHECK(cudaMallocManaged(&managed, sizeof(float) * N));
    milliseconds_to_write(managed);
    double faulting = milliseconds_of_twice(managed);
    double resident = milliseconds_of_twice(managed);
    double written_back = milliseconds_to_write(managed);
    double written_there = milliseconds_to_write(managed);
    cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaDeviceSynchronize());
    double begun = now();
    CHECK(cudaMemPrefetchAsync(managed, sizeof(float) * N, gpu, 0, 0));
    CHECK(cudaDeviceSynchronize());
    double prefetching = 1e3 * (now() - begun);
    double prefetched = milliseconds_of_twice(managed);

    double malloc_free = microseconds_each([] {
        void* piece;
        CHECK(cudaMalloc(&piece, PIECE));
        CHECK(cudaFree(piece));
    });
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;  // what is returned stays in the pool, also past a wait
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    double pool_pair = microseconds_each([] {
        void* piece;
        CHECK(cudaMallocAsync(&piece, PIECE, 0));
        CHECK(cudaFreeAsync(piece, 0));
    });
    printf("{\"MiB\": 256, \"kernel_ms\": {\"cudaMalloc\": %.3f, \"managed, pages fault\": %.3f, "
           "\"managed, the second time\": %.3f, \"managed, sent ahead\": %.3f}, "
           "\"sending_ms\": %.3f, \"cpu_write_ms\": {\"after the GPU had the pages\": %.1f, "
           "\"the second time\": %.1f}, \"pair_us\": {\"cudaMalloc, cudaFree\": %.2f, "
           "\"cudaMallocAsync, cudaFreeAsync\": %.2f}}\n",
           from_malloc, faulting, resident, prefetched, prefetching, written_back, written_there,
           malloc_free, pool_pair);
}
