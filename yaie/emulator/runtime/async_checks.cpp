// What asynchronous operations and their barriers order, and what they do not.
#include <string.h>

#include "checker.h"

namespace emulator {

void Checker::locate(Failure& failure) {
    const Range* range = find(failure.address, 1);
    if (!range) return;
    failure.memory = range->memory;
    failure.range = range->id;
    failure.offset = (int64_t)(failure.address - range->begin);
}

void Checker::found(Core& core, const Failure& failure) {
    core.busy = 1;
    add(failure);
    core.busy = 0;
}

void Checker::mbarrier_made(Core&, const uint64_t*, const void*) {}
void Checker::mbarrier_arrive(Core&, const uint64_t*, uint32_t, const void*) {}
void Checker::mbarrier_complete(Core&, const uint64_t*) {}
void Checker::mbarrier_seen(Core&, const uint64_t*) {}
void Checker::named_arrive(Core&, int) {}
void Checker::named_complete(Core&, int) {}
void Checker::issued(Core&, Flight&) {}
void Checker::landed(Core&, const Flight&) {}
void Checker::waited(Core&, const Flight&, bool) {}
void Checker::fence_async(Core&, bool) {}
void Checker::product_issued(Core&, const Product&, const void*) {}
void Checker::product_fence(Core&) {}
void Checker::product_waited(Core&, size_t) {}

}  // namespace emulator
