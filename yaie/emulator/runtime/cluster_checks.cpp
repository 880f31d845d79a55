// Accesses to the shared memory of another thread block of the cluster. That block must have started, which only a barrier of the cluster tells, and
// must not end before the access is done: one of its threads has to see something that follows it.
#include "checker.h"

namespace emulator {

void Checker::thread_ends(Core& core) {
    Busy busy(core);
    if (any_products_) end_products(core);
    if (core.cluster == 1) return;
    exits_[core.here - &core.blocks[0]].join(order_.seen_by(core.current->linear).here);
}

void Checker::reach(Core& core, const Range& range, uintptr_t address, size_t size, Access kind,
                    const void* site, bool by_agent) {
    const uint32_t me = core.current->linear;
    const Block& owner = core.blocks[range.block];
    if (!order_.has_met(me, owner.first, owner.first + core.count)) {
        add(describe(core, Kind::cluster, site, range, address, size, kind).says("start"));
    }
    if (by_agent) return;  // it is known which thread waits for those
    reaches_[me * core.blocks.size() + range.block] = {order_.now(me, kind == Access::atomic),
                                                       (uint32_t)size, address, &range, kind, site};
}

void Checker::end_reaching(Core& core) {
    for (size_t i = 0; i < reaches_.size(); ++i) {
        const Reach& last = reaches_[i];
        const uint32_t thread = (uint32_t)(i / core.blocks.size());
        if (!last.time || exits_[last.range->block].has(thread, last.time)) continue;
        core.here = core.threads[thread].block;
        add(describe(core, Kind::cluster, last.site, *last.range, last.address, last.size, last.kind)
                .of(core.threads[thread])
                .says("end"));
    }
}

}  // namespace emulator
