// The C interface between a compiled kernel file and the runtime.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct uint3 { unsigned int x, y, z; } uint3;

namespace emulator {

// One `kernel<<<grid, thread_block, shared_bytes>>>(...)`.
struct Launch {
    uint3 grid, thread_block;
    size_t shared_bytes;
    void (*body)(void* arguments);  // runs one thread of the kernel
    void* arguments;
    size_t arguments_size;
    const char* file;  // an address that identifies the file
    const char* name;
    bool checked;  // whether the file reports its loads and stores
    bool cooperative;  // all thread blocks run together, and may wait for each other
    uint3 cluster;     // those that reach each other's shared memory, and run together in any launch
    bool has_cluster;  // the launch says so itself
    uint32_t together;  // how many clusters run together though none waits for another; 0: one
};

// Operations that the lanes of a warp execute together, with the same operation and mask.
enum class Collective : int {
    none, sync, shuffle, shuffle_up, shuffle_down, shuffle_xor, any, all, ballot, match_any,
    match_all, add, min_signed, max_signed, min_unsigned, max_unsigned, bit_and, bit_or, bit_xor,
    gather, multiply,
};

// mma.sync for 16 rows and 8 columns: the types of the elements, and the registers of B.
enum class Element : uint8_t { f16, bf16, tf32, s8, u8, e4m3, e5m2, f32, s32 };
struct TileProduct { Element a, b, c; uint8_t of_b; };

enum class Vote : int { none, by_count, by_and, by_or };  // what a barrier returns

}  // namespace emulator

extern "C" {
// The running thread's threadIdx, blockIdx, blockDim and gridDim. Thread-local in the cheapest way
// (__thread: never initialized by code); a read takes two instructions.
struct emulator_Place {
    uint3 thread, block, block_dim, grid_dim;
};
extern __thread emulator_Place emulator_place __attribute__((tls_model("initial-exec")));

// The same for checked code, where reading a variable would be reported as a load.
uint3 emulator_thread_index(void) __attribute__((const));
uint3 emulator_block_index(void) __attribute__((const));
uint3 emulator_block_dim(void) __attribute__((const));
uint3 emulator_grid_dim(void) __attribute__((const));

int emulator_launch(const emulator::Launch* launch);
int emulator_sync_threads(emulator::Vote vote, int predicate);
uint64_t emulator_collective(emulator::Collective operation, uint32_t mask, uint64_t value,
                             int parameter, int width);
// All lanes give a value, and may take what others gave until the next time: with `matrices`, the
// addresses that ldmatrix and stmatrix need.
void emulator_gather(uint64_t value, int matrices, int transposed);
uint64_t emulator_gathered(int lane);
// Two registers of 32 bits in each number, the first in its lower half.
typedef struct emulator_Registers { uint64_t low, high; } emulator_Registers;
emulator_Registers emulator_multiply(emulator::TileProduct product, uint64_t a_low, uint64_t a_high,
                                     uint64_t b, uint64_t c_low, uint64_t c_high);
uint32_t emulator_active_lanes(void);
void emulator_sync_team(int of_grid);  // or of the cluster
// The extent of a cluster; an address in another thread block of it; whose shared memory one is in;
// from the file's static shared arrays to those of this thread block.
uint3 emulator_cluster_dim(void) __attribute__((const));
void* emulator_map_shared(const void* address, uint32_t rank);
uint32_t emulator_shared_rank(const void* address);
ptrdiff_t emulator_shared_shift(void) __attribute__((const));
void emulator_cluster_dims(unsigned x, unsigned y, unsigned z);
void emulator_cluster_arrive(int releases);
void emulator_cluster_wait(int acquires);
int emulator_is_cooperative(void);
void emulator_refuse_tile(const void* tile, size_t row_bytes);  // a tile of wmma
// In checked mode: a local variable, of elements of `item` bytes, without a value if it has a name; its end.
void emulator_begin_unset(void* variable, size_t size, size_t item, const char* name)
    __attribute__((nothrow));
void emulator_end_unset(void* variable) __attribute__((nothrow));
void* __tsan_memcpy(void* to, const void* from, size_t size);
void* __tsan_memmove(void* to, const void* from, size_t size);
void* __tsan_memset(void* to, int value, size_t size);
void emulator_begin_kernel(uint64_t instance, int compiled);  // ends the call if it is left out
void emulator_launch_bounds(unsigned most_threads);  // refuses the launch if it has more
void emulator_fence(int device);  // 0: for the thread block only
// Lets other threads run; with an address, only if the thread polled the same address just before.
// The site is what was called from the kernel's line; null: this itself.
void emulator_poll(const void* address, const void* site);
void emulator_note_atomic(void* address, size_t size, int compares, const void* site);
void emulator_note_atomic_store(void* address, size_t size, const void* site);

// Asynchronous copies of the running thread. The bytes move as late as allowed: when the thread
// waits for the group of the copy. The last `zeros` of `size` bytes become zero and are not read.
void emulator_start_copy(void* to, const void* from, size_t size, size_t zeros);
void emulator_commit_copies(void);
void emulator_wait_copies(size_t groups_in_flight);

int emulator_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
void emulator_assert_failed(const char* expression, const char* file, int line);
void emulator_trap(void);

// For the host: each returns a cudaError_t.
int emulator_get_last_error(void);
int emulator_peek_last_error(void);
int emulator_allow_shared(const char* file, const char* kernel, size_t bytes);
int emulator_allocate(void** pointer, size_t bytes, int on_host);
int emulator_free(void* pointer);
int emulator_copy(void* to, const void* from, size_t bytes, int kind);
int emulator_set(void* to, int value, size_t bytes);
int emulator_num_cores(void);
long long emulator_nanoseconds(void);  // of a clock that only goes forward

// Where `extern __shared__` arrays begin, on the calling core.
void* emulator_dynamic_shared(void) __attribute__((const));
}
