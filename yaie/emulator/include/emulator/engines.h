// What TMA and wgmma are asked to do, as kernels tell the runtime: boxes of tensors, and products of
// matrices in shared memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "async.h"

namespace emulator {

struct TensorMap {  // what a CUtensorMap holds here
    static constexpr uint32_t valid = 0x7e45a9;
    uint64_t address, sizes[5], strides[4];  // sizes in elements, the innermost first; in bytes
    uint16_t box[5];
    uint8_t rank, element;  // bytes of an element
    uint8_t swizzle;        // log2 of the 16-byte chunks within which they change places: 0 to 3
    uint8_t fill;           // of bytes past the end: 0, or 255 for NaN
    uint32_t mark;          // `valid`: any other content is no map
};
static_assert(sizeof(TensorMap) <= 128, "it lies in a CUtensorMap");

// A box between global and shared memory. The map is a copy: its thread may have ended.
struct TensorBox {
    TensorMap map;
    int32_t at[5];  // the first element's coordinates
    char* shared;   // of which the address decides the swizzle
    bool store;     // from shared to global memory
};

// One wgmma of a warp group: c = a b + c, for c of 64 × n and 16 products per element.
struct MatrixProduct {
    uint64_t a, b;  // descriptors; a's unused if it is in registers
    int n;
    bool bfloat16, a_in_registers, a_mn, b_mn, negate_a, negate_b;
    bool add;       // else c need not have a value
};
// A thread's part of it.
struct ProductPart {
    MatrixProduct product;
    const char* shared;     // where address 0 lies
    const uint32_t* a[4];   // its registers of a, where they may be changed meanwhile; else null
    uint32_t values[4];     // of them now
    bool late[4];           // read when it lands; not what is const here, and lives as long as it is
    float* places[128];     // of its accumulators; if they lie in a row, only the first
    bool in_a_row;
};
struct ProductCall {  // lives until the whole warp group has issued it
    ProductPart part;
    Product operation;
    Span accumulators[128], fragments[4];
};

}  // namespace emulator

extern "C" {
// Starts a copy of a box, counted by an mbarrier or, of a store, by a group.
void emulator_copy_box(const void* map, int rank, const int* at, void* shared, int store,
                       uint64_t* barrier);
// Of bytes without a tensor; `barrier` null: counted by a group.
void emulator_copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier);
void emulator_prepare_product(emulator::ProductCall* call);  // fills in the rest of a product

// cuTensorMapEncodeTiled; returns a CUresult.
int emulator_encode_tensor_map(void* map, int type, uint32_t rank, void* address,
                               const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                               const uint32_t* steps, int interleave, int swizzle, int fill);
}
