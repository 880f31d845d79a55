// Finds races, which are unordered accesses to one address, and reads of uninitialized memory.
#include <algorithm>

#include "checker.h"
#include "grid.h"

namespace emulator {

namespace {

// Keeps one reader of the current interval between barriers and a second reader of another thread,
// preferably of another warp. A later write that races with any reader races with one of these.
void note_reader(Cell& cell, const Stamp& now) {
    const Stamp first = cell.reader;
    if (now.kind == in_flight || (first.kind == in_flight && first.block == now.block)) {
        cell.other_reader = now.kind == in_flight ? first : now;  // a write races with any copy
        if (now.kind == in_flight) cell.reader = now;
        return;
    }
    const bool same_interval = first.block == now.block && first.epoch == now.epoch;
    if (!same_interval || first.thread == now.thread) {
        if (first.block != now.block) cell.other_reader = first;
        cell.reader = now;
        return;
    }
    const Stamp& other = cell.other_reader;
    const bool keep = other.block == now.block && other.epoch == now.epoch &&
                      other.thread / 32 != first.thread / 32;
    if (!keep || now.thread == other.thread) cell.other_reader = now;
}

}  // namespace

// Recognizes the pattern "the last thread block adds up": each thread block writes its part,
// executes a fence and increments a counter atomically; the one that finds the count complete may
// read all parts.
void Checker::order_by_atomic(Core& core, uintptr_t address) {
    bool added;
    NumberSet& released = released_.at(address, &added);
    acquired_.add_all(released);
    if (!core.current->fenced) return;
    released.add_all(acquired_);
    released.add(next_block_ - first_block_);
}

Shadow::Cells Checker::cells_of(const Range& range, uintptr_t address, size_t size) const {
    const bool is_static = range.memory == Memory::shared && range.id != dynamic_shared;
    return range.shadow->at(address - (is_static ? shared_base_ : range.begin), size);
}

// An atomic store changes what is there without reading it: shared memory counts as written.
void Checker::atomic_store(Core& core, uintptr_t address, size_t size, const void* site) {
    const Range* range = find(address, size);
    if (range && range->shadow && range->memory == Memory::shared && address % size == 0) {
        const Shadow::Cells cells = cells_of(*range, address, size);
        for (size_t i = 0; i < cells.count; ++i) {
            Stamp& writer = cells.first[i].writer;
            if (writer.block == next_block_) continue;
            writer.block = next_block_;
            writer.thread = (uint16_t)core.current->linear;
        }
    }
    access(core, address, size, Access::atomic, site);
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
    if (read) access(core, from, read, Access::load, copy.site, true);
    access(core, reinterpret_cast<uintptr_t>(copy.to), copy.size, Access::store, copy.site, true);
}

void Checker::land_copy(Core& core, const Copy& copy) {
    settle(core, copy.from, copy.size - copy.zeros);
    settle(core, copy.to, copy.size);
}

void Checker::settle(Core& core, const void* address, size_t size) {
    const uint16_t me = (uint16_t)core.current->linear;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
    const Range* range = find(begin, size);
    if (!range || !range->shadow) return;
    const Shadow::Cells cells = cells_of(*range, begin, size);
    for (size_t i = 0; i < cells.count; ++i) {
        Cell& cell = cells.first[i];
        for (Stamp* stamp : {&cell.writer, &cell.reader, &cell.other_reader}) {
            if (stamp->kind != in_flight || stamp->block != next_block_ || stamp->thread != me) {
                continue;
            }
            stamp->kind = (uint32_t)Access::store;
            stamp->epoch = (uint32_t)core.epoch & 0x3fffffffu;
            stamp->clock = clocks_.own(me);
        }
    }
}

void Checker::look_for_race(Core& core, const Range& range, uintptr_t address, size_t size,
                            Access kind, uint16_t index, bool copying) {
    const Thread& me = *core.current;
    const uint32_t epoch = (uint32_t)core.epoch & 0x3fffffffu;
    const Stamp now = {next_block_,         (uint16_t)me.linear, index, epoch,
                       copying ? in_flight : (uint32_t)kind, clocks_.own(me.linear)};
    const bool in_shared = range.memory == Memory::shared;

    auto is_in_flight = [&](const Stamp& stamp) {
        return stamp.kind == in_flight && stamp.block == next_block_;
    };
    auto ordered = [&](const Stamp& earlier) {
        if (is_in_flight(earlier)) return false;
        if (earlier.block < first_block_) return true;
        if (earlier.block != next_block_) {
            return in_shared || acquired_.has(earlier.block - first_block_);
        }
        if (earlier.thread == me.linear || earlier.epoch != epoch) return true;
        return earlier.thread / 32 == me.linear / 32 &&
               clocks_.has_seen(me.linear, earlier.thread, earlier.clock);
    };
    auto conflicts = [&](const Stamp& earlier) {
        const bool both_atomic = earlier.kind == (uint32_t)Access::atomic && kind == Access::atomic;
        return !both_atomic && !ordered(earlier);
    };

    Conflict conflict;
    bool uninitialized = false;
    const Shadow::Cells cells = cells_of(range, address, size);
    if (!cells.count && std::find(untracked.begin(), untracked.end(), range.id) == untracked.end()) {
        untracked.push_back(range.id);
    }
    for (size_t i = 0; i < cells.count; ++i) {
        Cell& cell = cells.first[i];
        const bool written = cell.writer.block == next_block_;
        if (in_shared && !written && kind != Access::store) uninitialized = true;
        if (!conflict.found && conflicts(cell.writer)) conflict = {true, cell.writer};
        if (!conflict.found && conflicts(cell.other_writer)) conflict = {true, cell.other_writer};
        if (kind == Access::load) {
            note_reader(cell, now);
            continue;
        }
        if (!conflict.found && conflicts(cell.reader)) conflict = {true, cell.reader};
        if (!conflict.found && conflicts(cell.other_reader)) conflict = {true, cell.other_reader};
        const bool after_atomic = cell.writer.kind == (uint32_t)Access::atomic &&
                                  kind == Access::atomic && cell.writer.thread != now.thread;
        if (after_atomic) cell.other_writer = cell.writer;
        cell.writer = now;
    }
    const void* site = counters.sites[index].address;
    if (uninitialized && !threads_were_killed_) {
        add(describe(core, Kind::uninitialized, site, range, address, size, kind));
    }
    const Stamp& earlier = conflict.earlier;
    const Kind what = is_in_flight(earlier) ? Kind::pending_copy : Kind::race;
    if (!conflict.found || (what == Kind::pending_copy && threads_were_killed_)) return;
    Failure finding = describe(core, what, site, range, address, size, kind);
    const Site& other = counters.sites[earlier.site];
    finding.other_site = other.address;
    finding.other_access = other.access;
    finding.other_thread = core.threads[earlier.thread].index;
    finding.other_block =
        earlier.block == next_block_ ? core.block : block_indices_[earlier.block - first_block_];
    add(finding);
}

}  // namespace emulator
