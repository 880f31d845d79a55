// TMA and wgmma as kernels ask for them: what is refused, and which operation it is.
#include "../include/emulator/engines.h"

#include <stdio.h>
#include <string.h>

#include <utility>

#include "boxes.h"
#include "failure.h"
#include "products.h"

using namespace emulator;

namespace {

[[noreturn]] void refuse(const char* what, const char* why, const void* site) {
    Failure failure = failure_of(*this_core, Kind::refused, site, nullptr, "%s %s", what, why);
    failure.error = 716;
    fail(*this_core, failure);
}

bool past_dynamic(const char* from, size_t bytes) {
    Core& core = *this_core;
    const Block* owner = core.owner(from);
    const auto offset = (uintptr_t)from - (uintptr_t)(owner ? owner : core.here)->dynamic_shared;
    return offset < (256 << 10) && offset + bytes > core.launch->shared_bytes;
}

constexpr const char* past_the_end = "reaches past the end of the launch's dynamic shared memory";

void issue(Flight& flight, uint64_t* barrier, size_t bytes, const void* site) {
    flight.mbarrier = barrier, flight.bytes = (uint32_t)bytes, flight.site = site;
    this_core->busy = 0;
    this_core->async.issue(std::move(flight));
}

void compute(void* const* data) {
    const ProductPart* parts[warp_group];
    for (int t = 0; t < warp_group; ++t) parts[t] = static_cast<const ProductPart*>(data[t]);
    compute_product(parts);
}

}  // namespace

extern "C" {

void emulator_copy_box(const void* map, int rank, const int* at, void* shared, int store,
                       uint64_t* barrier) {
    const void* site = __builtin_return_address(0);
    const char* what = store ? "TMA's store" : "TMA's load";
    Core& core = *this_core;
    core.async.tick();
    TensorBox box = {};
    memcpy(&box.map, map, sizeof(box.map));
    if (box.map.mark != TensorMap::valid) refuse(what, "names no tensor map that was encoded", site);
    if (box.map.rank != rank) refuse(what, "has other dimensions than its tensor map", site);
    if ((uintptr_t)shared % 128) {
        refuse(what, "needs an address in shared memory that is a multiple of 128", site);
    }
    if (!store && core.cluster > 1 && core.owner(shared) != core.owner(barrier)) {
        refuse(what, "needs an mbarrier of the thread block into whose shared memory it goes", site);
    }
    memcpy(box.at, at, rank * sizeof(int));
    box.shared = static_cast<char*>(shared);
    box.store = store;
    const size_t bytes = box_bytes(box.map);
    if (past_dynamic(box.shared, bytes)) refuse(what, past_the_end, site);
    core.busy = 1;
    Flight flight = {};
    (store ? flight.reads : flight.writes).push_back({shared, bytes});
    (store ? flight.writes : flight.reads) = box_spans(box);
    flight.box.reset(new TensorBox(box));
    issue(flight, barrier, bytes, site);
}

void emulator_copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
    const void* site = __builtin_return_address(0);
    this_core->async.tick();
    if (((uintptr_t)to | (uintptr_t)from | bytes) % 16) {
        refuse("a bulk copy", "needs addresses and a size that are multiples of 16", site);
    }
    if (past_dynamic(static_cast<char*>(barrier ? to : (void*)from), bytes)) {
        refuse("a bulk copy", past_the_end, site);
    }
    this_core->busy = 1;
    Flight flight = {};
    flight.reads.push_back({from, bytes});
    flight.writes.push_back({to, bytes});
    issue(flight, barrier, bytes, site);
}

void emulator_prepare_product(ProductCall* call) {
    const void* site = __builtin_return_address(0);
    const Core& core = *this_core;
    static thread_local std::vector<std::vector<Span>> reads_of;  // the warp groups of a team
    const size_t group = core.current->linear / warp_group;
    if (reads_of.size() <= group) reads_of.resize(group + 1);
    auto& reads = reads_of[group];  // until all of it have come
    ProductPart& part = call->part;
    Product& operation = call->operation;
    const int count = part.product.n / 2;
    part.shared = reinterpret_cast<const char*>(core.here->dynamic_shared);
    if (core.current->linear % warp_group == 0) {
        const char* problem = product_problem(part.product, core.launch->shared_bytes);
        if (problem) refuse("a descriptor of wgmma", problem, site);
        if (core.checking) reads = product_spans(part.product, part.shared);
        operation.reads = reads.data(), operation.num_reads = reads.size();
    }
    part.in_a_row = true;
    for (int i = 0; i < count; ++i) {
        call->accumulators[i] = {part.places[i], sizeof(float)};
        part.in_a_row &= part.places[i] == part.places[0] + i;
    }
    operation.accumulators = call->accumulators, operation.num_accumulators = count;
    if (part.in_a_row) {
        call->accumulators[0].size = count * sizeof(float), operation.num_accumulators = 1;
    }
    operation.fragments = call->fragments;
    for (const uint32_t* a : part.a) {
        if (a) call->fragments[operation.num_fragments++] = {a, sizeof(*a)};
    }
    operation.perform = compute;
    operation.data = &part, operation.data_size = sizeof(part);
}

int emulator_encode_tensor_map(void* map, int type, uint32_t rank, void* address,
                               const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                               const uint32_t* steps, int interleave, int swizzle, int fill) {
    constexpr int invalid = 1, not_supported = 801;  // CUDA_ERROR_INVALID_VALUE, _NOT_SUPPORTED
    // Of CU_TENSOR_MAP_DATA_TYPE_UINT8 and those that follow.
    constexpr uint8_t bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    if (type < 0 || rank < 1 || rank > 5 || !map || (uintptr_t)map % 64) return invalid;
    if (type >= (int)sizeof(bytes_of) || interleave != 0 || swizzle > 3) return not_supported;
    TensorMap made = {};
    made.element = bytes_of[type];
    if (swizzle < 0 || fill < 0 || fill > 1 || (uintptr_t)address % 16) return invalid;
    if (fill && (type < 6 || type > 12)) return invalid;  // NaN for floats only
    for (uint32_t i = 0; i < rank; ++i) {
        if (sizes[i] == 0 || sizes[i] > 1ull << 32 || box[i] == 0 || box[i] > 256) return invalid;
        if (steps[i] == 0 || steps[i] > 8) return invalid;
        if (i && steps[i] != 1) return not_supported;
        made.sizes[i] = sizes[i], made.box[i] = (uint16_t)box[i];
        if (i == 0) continue;
        if (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40) return invalid;
        made.strides[i - 1] = strides[i - 1];
    }
    const size_t row = (size_t)box[0] * made.element, span = 16u << swizzle;
    if (row % 16 || (swizzle && row > span)) return invalid;
    if (swizzle && row < span) return not_supported;  // where its rows would lie is not documented
    made.address = (uint64_t)address;
    made.rank = (uint8_t)rank;
    made.swizzle = (uint8_t)swizzle;
    made.fill = fill ? 255 : 0;
    made.mark = TensorMap::valid;
    memset(map, 0, 128);
    memcpy(map, &made, sizeof(made));
    return 0;
}
}
