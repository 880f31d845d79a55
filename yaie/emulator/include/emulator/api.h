// What a compiled kernel file and the runtime say to each other: a small C interface.
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
    const char* file;  // an address that no other file has
    const char* name;
    bool checked;  // this file reports its loads and stores
};

// What the lanes of a warp do together; lanes meet by calling with the same operation and mask.
enum class Collective : int {
    none, sync, shuffle, shuffle_up, shuffle_down, shuffle_xor, any, all, ballot, match_any,
    match_all, add, min_signed, max_signed, min_unsigned, max_unsigned, bit_and, bit_or, bit_xor,
};

enum class Vote : int { none, count, both, either };  // what __syncthreads returns

}  // namespace emulator

extern "C" {
// Where the running thread is: what a kernel calls threadIdx, blockIdx, blockDim and gridDim.
// Thread-local in the cheapest way (__thread: never initialized by code), two instructions to read.
struct emulator_Place {
    uint3 thread, block, block_dim, grid_dim;
};
extern __thread emulator_Place emulator_place __attribute__((tls_model("initial-exec")));

// The same for checked code, which would report the reading of a variable.
uint3 emulator_thread_index(void) __attribute__((const));
uint3 emulator_block_index(void) __attribute__((const));
uint3 emulator_block_dim(void) __attribute__((const));
uint3 emulator_grid_dim(void) __attribute__((const));

int emulator_launch(const emulator::Launch* launch);
int emulator_sync_threads(emulator::Vote vote, int predicate);
uint64_t emulator_collective(emulator::Collective operation, uint32_t mask, uint64_t value,
                             int parameter, int width);
uint32_t emulator_active_lanes(void);
void emulator_fence(void);
void emulator_note_atomic(void* address, size_t size, const void* site);
int emulator_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
void emulator_assert_failed(const char* expression, const char* file, int line);
void emulator_trap(void);

// The host's side: each returns a cudaError_t.
int emulator_get_last_error(void);
int emulator_peek_last_error(void);
int emulator_allow_shared(const char* file, const char* kernel, size_t bytes);
int emulator_allocate(void** pointer, size_t bytes);
int emulator_free(void* pointer);
int emulator_copy(void* to, const void* from, size_t bytes, int kind);
int emulator_set(void* to, int value, size_t bytes);
int emulator_num_cores(void);

// Where `extern __shared__` arrays lie, on the core that asks.
void* emulator_dynamic_shared(void) __attribute__((const));
}
