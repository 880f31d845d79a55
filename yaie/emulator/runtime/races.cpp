// Finds races, which are unordered accesses to one address, and reads of uninitialized memory.
#include <algorithm>

#include "checker.h"
#include "grid.h"

namespace emulator {

namespace {

// Keeps one reader of the current interval between barriers and a second reader of another thread,
// preferably of another warp. A later write that races with any reader races with one of these.
void note_reader(Cell& cell, const Stamp& now) {
    const Stamp& first = cell.reader;
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

void Checker::look_for_race(Core& core, const Range& range, uintptr_t address, size_t size,
                            Access kind, uint16_t index) {
    const Thread& me = *core.current;
    const uint32_t epoch = (uint32_t)core.epoch & 0x3fffffffu;
    const Stamp now = {next_block_,         (uint16_t)me.linear, index, epoch, (uint32_t)kind,
                       clocks_.own(me.linear)};
    const bool in_shared = range.memory == Memory::shared;

    auto ordered = [&](const Stamp& earlier) {
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

    const uintptr_t base = range.memory == Memory::shared && range.id != dynamic_shared
                               ? shared_base_
                               : range.begin;
    Conflict conflict;
    bool uninitialized = false;
    const Shadow::Cells cells = range.shadow->at(address - base, size);
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
    if (!conflict.found) return;
    Failure finding = describe(core, Kind::race, site, range, address, size, kind);
    const Stamp& earlier = conflict.earlier;
    const Site& other = counters.sites[earlier.site];
    finding.other_site = other.address;
    finding.other_access = other.access;
    finding.other_thread = core.threads[earlier.thread].index;
    finding.other_block =
        earlier.block == next_block_ ? core.block : block_indices_[earlier.block - first_block_];
    add(finding);
}

}  // namespace emulator
