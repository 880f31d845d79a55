// What asynchronous operations and their barriers order, and what they do not.
//
// An operation accesses memory as an agent: each mbarrier and each warp group has one, whose times
// count its operations. A thread that waits has seen the agent up to the operations that are complete,
// and passes that on as it passes on what it has seen of other threads. So whether an access is in
// order does not depend on when the operation lands. What a group of one thread completes is in flight
// until that thread waits, and counts as its own access then.
#include <string.h>

#include <algorithm>

#include "checker.h"

namespace emulator {

void Checker::begin_async(Core& core) {
    meetings_.clear();
    agents_.clear();
    const size_t groups = (core.slots + warp_group_size - 1) / warp_group_size;
    group_agents_.assign(groups, 0);
    made_visible_.assign(core.slots, Seen());
    if (any_products_ || products_.size() < core.slots) products_.assign(core.slots, {});
    reaches_.assign(core.cluster > 1 ? core.slots * core.blocks.size() : 0, Reach());
    exits_.assign(core.blocks.size(), Seen());
    any_products_ = false;
}

// A copy that no thread has waited for may write when the memory belongs to another thread block.
void Checker::end_async(Core& core) {
    for (uint32_t i = 0; i < core.slots; ++i) {
        if (threads_were_killed_ || core.threads[i].state != State::done) return;
    }
    meetings_.each([&](uint64_t address, Meeting& one) {
        if (one.seen >= one.issued) return;
        const Thread& by = core.threads[agents_[(one.agent - first_agent) / 32].started_by];
        const auto* barrier = reinterpret_cast<const void*>(address);
        add(describe(core, Kind::pending_copy, one.site, barrier).of(by).says("end"));
    });
    end_reaching(core);
}

void Checker::locate(Failure& failure) {
    const Range* range = find(failure.address, 1);
    if (!range) return;
    failure.memory = range->memory;
    failure.range = range->id;
    failure.offset = (int64_t)(failure.address - range->begin);
    failure.owner = owner_of(*this_core, *range);
}

void Checker::found(Core& core, const Failure& failure) {
    Busy busy(core);
    add(failure);
}

// An access of the runtime itself, for the current thread.
void Checker::touch(Core& core, const void* address, size_t size, Access kind, const void* site,
                    Manner manner, Agent agent) {
    if (!size) return;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
    if (stored_.open) settle_store();
    const Range* range = find(begin, size);
    if (!range || (kind != Access::load && !range->writable)) {
        refuse(core, out_of_bounds(core, begin, size, kind, site));
    }
    const uint16_t index = counters.site(site, range->memory, kind, (int)size, range->id);
    if (range->shadow) look_for_race(core, *range, begin, size, kind, index, manner, agent);
    if (kind == Access::store && !agent.thread) core.current->fenced = false;
}

// ----------------------------------------------------------------------------------- barriers

Checker::Meeting& Checker::meeting(const void* barrier) {
    bool added;
    return meetings_.at(reinterpret_cast<uint64_t>(barrier), &added);
}

void Checker::mbarrier_made(Core& core, const uint64_t* barrier, const void* site) {
    Busy busy(core);
    touch(core, barrier, sizeof(*barrier), Access::store, site, Manner::plain);
    Meeting& made = meeting(barrier);
    made = Meeting();
    made.made_by = core.current->linear;
    made.made_at = order_.now(made.made_by, false);
    made.made = site;
}

void Checker::mbarrier_used(Core& core, const uint64_t* barrier, const void* site) {
    Busy busy(core);
    touch(core, barrier, sizeof(*barrier), Access::atomic, site, Manner::plain);
}

// A relaxed arrival orders what was done before fence.mbarrier_init, else only tells that it came.
void Checker::gives(Core& core, const void* barrier, bool releases) {
    Busy busy(core);
    const uint32_t me = core.current->linear;
    Knowledge& given = meeting(barrier).pending;
    if (releases) return order_.give(me, given);
    given.here.join(made_visible_[me]);
    given.fenced[(int)Proxy::mbarrier_init].join(made_visible_[me]);
    given.here.add(me, 1);
}

// A phase of an mbarrier shows what earlier ones have shown, and its agent's operations before the first
// that is still in flight.
void Checker::completes(Core& core, const void* barrier) {
    Busy busy(core);
    Meeting& one = meeting(barrier);
    if (!one.made) one.complete.clear();
    order_.join(one.complete, one.pending);
    one.pending.clear();
    if (!one.agent) return;
    uint32_t first = one.issued + 1;
    for (uint32_t number : one.in_flight) first = std::min(first, number);
    one.complete.here.add(one.agent, first - 1);
}

void Checker::takes(Core& core, const void* barrier, uint32_t thread) {
    Busy busy(core);
    Meeting& one = meeting(barrier);
    if (one.complete.is_empty()) return;
    order_.take(thread, one.complete);
    for (const auto& seen : one.complete.here.above) {
        if (seen.first == one.agent) one.seen = std::max(one.seen, seen.second);
    }
}

void Checker::gathered(Core& core, const Gathering& barrier, bool all_wait) {
    if (all_wait) meeting(&barrier).pending.clear();
    completes(core, &barrier);
    Busy busy(core);
    settle_all();
    if (all_wait) synchronize(core, barrier.first, barrier.end);
    for (uint32_t warp = barrier.first / 32; warp * 32 < barrier.end; ++warp) counters.flush(core, warp);
}

// -------------------------------------------------------------------------------- copy engine

// Agents are as far apart as warps, so that a cell keeps readers of two of them.
Agent Checker::new_agent(uint32_t thread, bool is_product) {
    agents_.push_back({thread, is_product});
    return {first_agent + 32 * (uint32_t)(agents_.size() - 1), 0};
}

void Checker::name_agent(const Stamp& stamp, Failure& finding) const {
    if (agent_of(stamp).is_product) finding.says("wgmma");
}

void Checker::issued(Core& core, Flight& flight) {
    Busy busy(core);
    Agent agent;
    if (flight.mbarrier) {
        touch(core, flight.mbarrier, sizeof(uint64_t), Access::atomic, flight.site, Manner::issuing);
        Meeting& one = meeting(flight.mbarrier);
        const uint32_t me = core.current->linear;
        if (flight.moves() && !is_made_visible(me, one)) {
            add(describe(core, Kind::missing_fence, flight.site, flight.mbarrier)
                    .beside(one.made, core.threads[one.made_by])
                    .says("init"));
        }
        if (!one.agent) one.agent = new_agent(me, false).thread;
        agents_[(one.agent - first_agent) / 32].started_by = me;
        one.site = flight.site;
        flight.number = ++one.issued;
        one.in_flight.push_back(flight.number);
        agent = {one.agent, flight.number};
    }
    const Manner manner = flight.mbarrier ? Manner::plain : Manner::bulk;
    for (const Span& span : flight.reads) {
        touch(core, span.begin, span.size, Access::load, flight.site, manner, agent);
    }
    for (const Span& span : flight.writes) {
        touch(core, span.begin, span.size, Access::store, flight.site, manner, agent);
    }
}

// The copies of cp.async that an mbarrier waits for are done by its agent.
void Checker::landed(Core& core, const Flight& flight) {
    Busy busy(core);
    Meeting& one = meeting(flight.mbarrier);
    auto& in_flight = one.in_flight;
    in_flight.erase(std::remove(in_flight.begin(), in_flight.end(), flight.number),
                    in_flight.end());
    if (flight.moves()) return;
    const Thread& by = *flight.by;
    const uint64_t waited = by.copies_started - by.copies.size();
    for (size_t i = 0; i < by.copies.size() && waited + i < flight.copies; ++i) {
        const Copy& copy = by.copies[i];
        settle((uint16_t)by.linear, copy.from, copy.size - copy.zeros, {one.agent, flight.number});
        settle((uint16_t)by.linear, copy.to, copy.size, {one.agent, flight.number});
    }
}

void Checker::waited(Core& core, const Flight& flight, bool only_reads) {
    Busy busy(core);
    const uint16_t me = (uint16_t)core.current->linear;
    const Agent agent = {me, order_.now(me, false)};
    for (const Span& span : flight.reads) settle(me, span.begin, span.size, agent, Touch::load);
    if (only_reads) return;
    for (const Span& span : flight.writes) settle(me, span.begin, span.size, agent, Touch::load);
}

// A store may go on after its thread block, but only if it has read what it stores.
void Checker::left(Core& core, const Flight& flight) {
    if (flight.mbarrier || flight.reads_seen || threads_were_killed_) return;
    Busy busy(core);
    add(describe(core, Kind::pending_copy, flight.site, flight.reads[0].begin)
            .of(*flight.by)
            .says("left"));
}

// ------------------------------------------------------------------------------------- fences

void Checker::fence_async(Core& core, int proxies) {
    Busy busy(core);
    const uint32_t me = core.current->linear;
    if (proxies >> (int)Proxy::mbarrier_init & 1) made_visible_[me] = order_.seen_by(me).here;
    order_.fence_proxies(me, proxies);
}

bool Checker::is_made_visible(uint32_t thread, const Meeting& one) const {
    return order_.has_fence(thread, one.made_by, one.made_at, Proxy::mbarrier_init) ||
           order_.has_fence(thread, one.made_by, one.made_at, Proxy::shared);
}

// Whether an asynchronous operation of the thread may meet what a store has left. Any fence of the
// thread block on the path of causality counts, after a barrier as well as before it (Lustig, Cooksey,
// Giroux, "Mixed-proxy extensions for the NVIDIA PTX memory consistency model").
bool Checker::is_fenced(uint32_t thread, const Stamp& store, bool in_shared) const {
    return store.block != next_block_ || store.thread >= first_agent ||
           store.touch() == Touch::in_flight || store.touch() == Touch::load ||
           !order_.has_seen(thread, store.thread, store.time) ||
           order_.has_fence(thread, store.thread, store.time,
                            in_shared ? Proxy::shared : Proxy::global);
}

void Checker::note_unfenced(Core& core, const Stamp& store, const Range& range, uintptr_t place,
                            Access kind, const void* site) {
    Failure finding = describe(core, Kind::missing_fence, site, range, place, 0, kind);
    const Site& other = counters.sites[store.site];
    finding.other_access = other.access;
    add(finding.beside(other.address, core.threads[store.thread]));
}

}  // namespace emulator
