// Finds races, which are unordered accesses to one address, and reads of uninitialized memory.
#include <string.h>

#include <algorithm>

#include "checker.h"
#include "grid.h"

namespace emulator {

// Keeps one reader of the current interval between barriers and a second reader of another thread,
// preferably of another warp. A later write that races with any reader races with one of these.
void note_reader(Cell& cell, const Stamp& now, const HappensBefore& order) {
    const Stamp first = cell.reader;
    auto is_current = [&](const Stamp& stamp) {
        return stamp.block == now.block && !order.seen_by_all(stamp.thread, stamp.time);
    };
    if (now.touch() == Touch::in_flight ||
        (first.touch() == Touch::in_flight && first.block == now.block)) {
        const bool copying = now.touch() == Touch::in_flight;
        cell.other_reader = copying ? first : now;  // a write races with any copy
        if (copying) cell.reader = now;
        return;
    }
    if (!is_current(first) || first.thread == now.thread) {
        if (first.block != now.block) cell.other_reader = first;
        const bool weaker = is_current(first) && now.touch() != Touch::load;
        if (!weaker || is_strong(first.touch())) cell.reader = now;
        return;
    }
    const Stamp& other = cell.other_reader;
    const bool keep = is_current(other) && other.thread / 32 != first.thread / 32;
    if (!keep || now.thread == other.thread) cell.other_reader = now;
}

namespace {

constexpr size_t most_open = 8;  // loads per thread that an atomicCAS may still follow

Touch touch_of(Access kind, Manner manner, bool fenced) {
    if (manner == Manner::copying || manner == Manner::bulk) return Touch::in_flight;
    if (manner != Manner::is_volatile) return (Touch)kind;
    if (kind == Access::load) return Touch::volatile_load;
    return fenced ? Touch::volatile_store : Touch::unfenced_store;
}

}  // namespace

Shadow::Cells Checker::cells_of(const Range& range, uintptr_t address, size_t size) const {
    return range.shadow->at(address - (range.origin ? range.origin : range.begin), size);
}

// A copy reads and writes at any time between its start and the wait for it. So its accesses are
// unordered with all others until then, those of its own thread included; after the wait they count
// as accesses of the waiting thread at that time.
void Checker::start_copy(Core& core, const Copy& copy) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(copy.from);
    const size_t read = copy.size - copy.zeros;
    const Range* range = find(from, read);
    if (read && range && from % copy.size) {
        refuse(core, describe(core, Kind::misaligned, copy.site, *range, from, copy.size,
                              Access::load));
    }
    if (read) access(core, from, read, Access::load, copy.site, Manner::copying);
    access(core, reinterpret_cast<uintptr_t>(copy.to), copy.size, Access::store, copy.site,
           Manner::copying);
}

void Checker::land_copy(Core& core, const Copy& copy) {
    const uint16_t me = (uint16_t)core.current->linear;
    const Agent seen = {me, order_.now(me, false)};
    settle(me, copy.from, copy.size - copy.zeros, seen);
    settle(me, copy.to, copy.size, seen);
}

// What a thread's copies have read and written counts as accesses of `agent` from now on; a write of
// the copy engine is kept as Touch::load, since it needs no fence_proxy_async.
void Checker::settle(uint16_t me, const void* address, size_t size, Agent agent, Touch touch) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
    const Range* range = find(begin, size);
    if (!range || !range->shadow) return;
    const Shadow::Cells cells = cells_of(*range, begin, size);
    for (size_t i = 0; i < cells.count; ++i) {
        Cell& cell = cells.first[i];
        for (Stamp* stamp : {&cell.store, &cell.reader, &cell.other_reader}) {
            if (stamp->touch() != Touch::in_flight || stamp->block != next_block_ ||
                stamp->thread != me) {
                continue;
            }
            stamp->kind = (uint32_t)touch;
            stamp->thread = (uint16_t)agent.thread;
            stamp->time = agent.time;
        }
    }
}

bool Checker::is_ordered(const Core& core, const Stamp& earlier, bool in_shared) const {
    const uint32_t me = core.current->linear;
    if (earlier.block < first_block_) return true;
    if (earlier.block == next_block_) {
        return earlier.touch() != Touch::in_flight &&
               order_.has_seen(me, earlier.thread, earlier.time);
    }
    return in_shared ||
           order_.has_seen_earlier(me, earlier.block - first_block_, earlier.thread, earlier.time);
}

bool Checker::conflicts(const Core& core, const Stamp& earlier, Touch touch, bool in_shared) const {
    if (is_strong(earlier.touch()) && is_strong(touch)) {
        // Volatile alone does not order the lanes of a warp: reductions without __syncwarp.
        if (earlier.touch() != Touch::unfenced_store && touch != Touch::unfenced_store) return false;
        if (earlier.touch() == Touch::atomic || touch == Touch::atomic || !in_shared ||
            earlier.thread / 32 != core.current->linear / 32) {
            return false;
        }
    }
    return !is_ordered(core, earlier, in_shared);
}

// Whether a thread's volatile store follows its volatile load of the same address, and another
// thread's store came between the two, or may come: thread blocks run in no order, but here one after
// another. `last` is the latest there.
bool Checker::loses_update(uint32_t thread, uintptr_t address, const Stamp& last, Access kind,
                           Manner manner) {
    Update& mine = updates_[thread];
    if (kind == Access::load && manner == Manner::is_volatile) {
        return mine = {address, last, mine.address == address}, false;
    }
    if (mine.address != address) return false;
    mine.address = 0;
    if (manner != Manner::is_volatile || last.touch() == Touch::atomic) return false;
    if (last.block != next_block_) {
        return last.block >= first_block_ && !mine.again &&
               !order_.has_seen_earlier(thread, last.block - first_block_, last.thread, last.time, true);
    }
    return last.thread != thread && memcmp(&last, &mine.writer, sizeof(last)) != 0;
}

void Checker::look_for_race(Core& core, const Range& range, uintptr_t address, size_t size,
                            Access kind, uint16_t index, Manner manner, Agent agent) {
    const Thread& me = *core.current;
    const bool in_shared = range.memory == Memory::shared;
    if (kind == Access::atomic || manner == Manner::is_volatile) {
        if (kind != Access::store) order_.acquire(me.linear, address, in_shared);
        if (kind != Access::load) order_.release(me.linear, address, in_shared);
    }
    const Touch touch = touch_of(kind, manner, me.fenced);
    const bool by_agent = agent.thread >= first_agent;
    if (!by_agent) agent = {me.linear, order_.now(me.linear, is_strong(touch))};
    const Stamp now = {next_block_, (uint16_t)agent.thread, index, agent.time, (uint32_t)touch};
    const Shadow::Cells cells = cells_of(range, address, size);
    if (!cells.count && std::find(untracked.begin(), untracked.end(), range.id) == untracked.end()) {
        untracked.push_back(range.id);
    }
    if (core.cluster > 1 && owner_of(core, range)) {
        reach(core, range, address, size, kind, counters.sites[index].address,
              by_agent || manner == Manner::issuing);
    }
    Conflict conflict;
    size_t i = 0;  // of the granule
    const bool bulk = by_agent || manner == Manner::bulk;
    bool unfenced = false;
    auto compare = [&](const Stamp& earlier) {
        if (earlier.block < first_block_ || conflict.found) return;
        const bool present = earlier.block == next_block_ && earlier.touch() != Touch::in_flight;
        const bool same = earlier.thread == now.thread && !by_agent;
        if (present && (same || order_.seen_by_all(earlier.thread, earlier.time))) return;
        if (conflicts(core, earlier, touch, in_shared)) conflict = {true, earlier, i};
    };
    const bool reads = kind != Access::store && manner != Manner::storing;
    bool uninitialized = false;
    const uint32_t since = in_shared ? next_block_ : range.since;
    const bool updates = cells.count && (manner == Manner::is_volatile || kind == Access::atomic);
    const Stamp last = updates ? cells.first[0].strong : Stamp();
    const bool lost = updates && loses_update(me.linear, address, last, kind, manner);
    if (manner == Manner::comparing) forget_loads(me.linear, cells, address, size);
    for (; i < cells.count; ++i) {
        Cell& cell = cells.first[i];
        const bool written = cell.store.block >= since || cell.strong.block >= since;
        if (!written && reads) uninitialized = true;
        compare(cell.store);
        compare(cell.strong);
        compare(cell.other_strong);
        if (bulk && !unfenced && !is_fenced(me.linear, cell.store, in_shared)) {
            unfenced = true;
            note_unfenced(core, cell.store, range, address + i * (size / cells.count), kind,
                          counters.sites[index].address);
        }
        if (kind == Access::load) {
            note_reader(cell, now, order_);
            continue;
        }
        compare(cell.reader);
        compare(cell.other_reader);
        if (!is_strong(touch)) {  // who is ordered after it is ordered after what it followed
            cell.store = now;
            cell.strong = cell.other_strong = Stamp();
            continue;
        }
        if (cell.strong.thread != now.thread || cell.strong.block != now.block) {
            cell.other_strong = cell.strong;
        }
        cell.strong = now;
    }
    const void* site = counters.sites[index].address;
    if (uninitialized && !threads_were_killed_) {
        add(describe(core, Kind::uninitialized, site, range, address, size, kind));
    }
    if (lost && size <= sizeof(stored_.before)) {
        stored_ = {true, address, size, {}, finding_of(core, Kind::race, site, range, address, size,
                                                       kind, last)};
        stored_.finding.says("lost");
        memcpy(stored_.before, reinterpret_cast<const void*>(address), size);
    }
    // If a load and an atomic operation conflict: the load, if an atomicCAS of its thread may follow.
    auto plain_load = [&](const Stamp& one, const Stamp& other) -> const Stamp* {
        if (other.touch() == Touch::load && one.touch() == Touch::atomic && !by_agent) return &other;
        const bool present = one.block == next_block_ && one.thread < core.slots;
        return one.touch() == Touch::load && other.touch() == Touch::atomic && present ? &one : nullptr;
    };
    const Stamp& earlier = conflict.earlier;
    const bool pending = conflict.found && earlier.block == next_block_ &&
                         (earlier.touch() == Touch::in_flight || earlier.thread >= first_agent);
    if (!conflict.found || (pending && threads_were_killed_)) return;
    const Failure finding = finding_of(core, pending ? Kind::pending_copy : Kind::race, site, range,
                                       address + conflict.granule * (size / cells.count), size,
                                       kind, earlier);
    // Threads that execute one store may all store one value: a flag in shared memory, or the lanes
    // of a warp. In global memory, whole warps that do so have more likely computed a wrong index.
    const bool again = touch == Touch::store && !by_agent && earlier.touch() == Touch::store &&
                       earlier.site == index && earlier.block == next_block_ &&
                       (in_shared || earlier.thread / 32 == me.linear / 32);
    if (again && size <= sizeof(stored_.before)) {
        stored_ = {true, address, size, {}, finding};
        memcpy(stored_.before, reinterpret_cast<const void*>(address), size);
    } else if (const Stamp* load = plain_load(earlier, now)) {
        auto& open = loaded_[load->thread];
        for (const Doubt& doubt : open) {
            if (doubt.address == address) return;
        }
        if (open.size() == most_open) add(open[0].finding), open.erase(open.begin());
        open.push_back({true, address, size, {}, finding});
        any_loaded_ = true;
    } else {
        add(finding);
    }
}

Failure Checker::finding_of(Core& core, Kind kind, const void* site, const Range& range,
                            uintptr_t address, size_t size, Access access,
                            const Stamp& earlier) const {
    const bool of_agent = earlier.thread >= first_agent && earlier.block == next_block_;
    Failure finding = describe(core, of_agent ? Kind::pending_copy : kind, site, range, address,
                               size, access);
    const Site& other = counters.sites[earlier.site];
    finding.other_site = other.address;
    finding.other_access = other.access;
    const uint32_t thread =
        of_agent ? agent_of(earlier).started_by : earlier.thread % first_agent % core.slots;
    finding.other_thread = core.threads[thread].index;
    finding.other_block = core.index_of_block(teams_[earlier.block - first_block_], thread);
    if (of_agent) name_agent(earlier, finding);
    return finding;
}

// ---------------------------------------------------------------------------------- doubts

// A store has happened: if the memory is as it was before, its thread stored what was there.
void Checker::settle_store() {
    stored_.open = false;
    const bool same =
        memcmp(stored_.before, reinterpret_cast<const void*>(stored_.address), stored_.size) == 0;
    if (same) stored_.finding.kind = Kind::same_value;
    add(stored_.finding);
}

void Checker::settle_all() {
    if (stored_.open) settle_store();
    for (uint32_t thread = 0; any_loaded_ && thread < loaded_.size(); ++thread) {
        for (const Doubt& doubt : loaded_[thread]) add(doubt.finding);
        loaded_[thread].clear();
    }
    any_loaded_ = false;
    for (uint32_t thread = 0; any_unset_ && thread < own_.size(); ++thread) settle_own(thread);
}

// An atomicCAS follows a plain load of the same thread: if another thread has written meanwhile, the
// comparison fails, so the load needs no order. NVIDIA's guide shows the loop.
void Checker::forget_loads(uint32_t thread, const Shadow::Cells& cells, uintptr_t address,
                           size_t size) {
    auto& open = loaded_[thread];
    auto is_meant = [=](const Doubt& doubt) {
        return doubt.address < address + size && address < doubt.address + doubt.size;
    };
    open.erase(std::remove_if(open.begin(), open.end(), is_meant), open.end());
    for (size_t i = 0; i < cells.count; ++i) {
        for (Stamp* stamp : {&cells.first[i].reader, &cells.first[i].other_reader}) {
            if (stamp->block == next_block_ && stamp->thread == thread) *stamp = Stamp();
        }
    }
}

}  // namespace emulator
