// What the barrier of a cluster or a grid orders, and accesses to the shared memory of another thread
// block of the cluster. That block must have started, which only a barrier of the cluster tells, and
// must not end before the access is done: one of its threads has to see something that follows it.
#include <stdio.h>

#include "checker.h"

namespace emulator {

// A relaxed arrival orders what was done before fence.mbarrier_init, else only tells that it came.
void Checker::team_arrive(Core& core, bool releases) {
    Busy busy(core);
    const uint32_t me = core.current->linear;
    if (releases) return order_.give(me, team_given_);
    team_given_.here.join(fences_[(int)Proxy::mbarrier_init][me].seen);
    team_given_.here.add(me, 1);
}

void Checker::team_passes(Core& core, bool all_wait) {
    Busy busy(core);
    settle_all();
    team_complete_.clear();
    if (all_wait) {
        order_.barrier();
    } else {
        team_complete_ = team_given_;
    }
    team_given_.clear();
    for (uint32_t warp = 0; warp * 32 < core.slots; ++warp) counters.flush(core, warp);
}

void Checker::team_seen(Core& core) {
    Busy busy(core);
    if (!team_complete_.is_empty()) order_.take(core.current->linear, team_complete_);
}

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
        Failure finding = describe(core, Kind::cluster, site, range, address, size, kind);
        snprintf(finding.text, sizeof(finding.text), "start");
        add(finding);
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
        Failure finding = describe(core, Kind::cluster, last.site, *last.range, last.address,
                                   last.size, last.kind);
        finding.thread = core.threads[thread].index;
        snprintf(finding.text, sizeof(finding.text), "end");
        add(finding);
    }
}

}  // namespace emulator
