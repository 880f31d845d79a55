// The products of warp groups (wgmma): what they read, and the registers that they use meanwhile.
#include <string.h>

#include <algorithm>

#include "checker.h"

namespace emulator {

// Each thread of the warp group must have seen what was written to the matrices.
void Checker::product_issued(Core& core, uint32_t first, const void* const* parts) {
    Busy busy(core);
    any_products_ = true;
    Thread* last = core.current;
    const uint32_t number = first / warp_group_size;
    if (!group_agents_[number]) group_agents_[number] = new_agent(first, true).thread;
    const Agent agent = {group_agents_[number], (uint32_t)last->product_groups + 1};
    std::vector<Read> reads;
    for (uint32_t i = 0; i < warp_group_size; ++i) {
        const auto& part = *static_cast<const Product*>(parts[i]);
        core.current = &core.threads[first + i];
        const void* site = core.current->site;
        for (size_t j = 0; i == 0 && j < part.num_reads; ++j) {
            find_writers(core, part.reads[j], reads, site, agent);
        }
        for (const Read& read : reads) {
            if (!is_ordered(core, read.writer, true)) {
                add(finding_of(core, Kind::race, site, *read.range, read.place, 4, Access::load,
                               read.writer));
            } else if (!is_fenced(first + i, read.writer, true)) {
                note_unfenced(core, read.writer, *read.range, read.place, Access::load, site);
            }
        }
        use_registers(core, part.fragments, part.num_fragments, false, site);
        use_registers(core, part.accumulators, part.num_accumulators, true, site);
    }
    core.current = last;
}

void Checker::find_writers(Core& core, const Span& span, std::vector<Read>& reads, const void* site,
                           Agent agent) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(span.begin);
    const Range* range = find(begin, span.size);
    if (!range) return add(out_of_bounds(core, begin, span.size, Access::load, site));
    const uint16_t index = counters.site(site, range->memory, Access::load, 4, range->id);
    const Stamp now = {next_block_, (uint16_t)agent.thread, index, agent.time,
                       (uint32_t)Touch::load};
    const Shadow::Cells cells = cells_of(*range, begin, span.size);
    Stamp last = {};
    bool uninitialized = false;
    for (size_t i = 0; i < cells.count; ++i) {
        Cell& cell = cells.first[i];
        const uintptr_t place = begin + i * (span.size / cells.count);
        if (cell.store.block != next_block_ && cell.strong.block != next_block_) {
            if (!uninitialized && !threads_were_killed_) {
                add(describe(core, Kind::uninitialized, site, *range, place, 4, Access::load));
            }
            uninitialized = true;
        }
        for (const Stamp& writer : {cell.store, cell.strong, cell.other_strong}) {
            if (writer.block != next_block_ || memcmp(&writer, &last, sizeof(last)) == 0) continue;
            last = writer;
            const bool known = std::any_of(reads.begin(), reads.end(), [&](const Read& read) {
                return memcmp(&read.writer, &writer, sizeof(writer)) == 0;
            });
            if (!known) reads.push_back({writer, range, place});
        }
        note_reader(cell, now, order_);
    }
}

void Checker::product_fence(Core& core) {
    Products& mine = products_[core.current->linear];
    mine.fenced = ++mine.events;
}

void Checker::product_waited(Core& core, size_t groups_in_flight) {
    Busy busy(core);
    const Thread& me = *core.current;
    for (Registers& one : products_[me.linear].registers) {
        if (one.group + groups_in_flight < me.product_groups) one.pending = false;
    }
    const uint32_t agent = group_agents_[me.linear / warp_group_size];
    if (agent && me.product_groups > groups_in_flight) {
        order_.take(me.linear, agent, (uint32_t)(me.product_groups - groups_in_flight));
    }
}

// Registers of a product: what was written to them since the last wgmma.fence is not ordered before it.
void Checker::use_registers(Core& core, const Span* spans, size_t count, bool accumulates,
                            const void* site) {
    const Thread& me = *core.current;
    Products& mine = products_[me.linear];
    for (size_t i = 0; i < count; ++i) {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(spans[i].begin);
        const uintptr_t end = begin + spans[i].size;
        Registers* known = nullptr;
        for (Registers& one : mine.registers) {
            if (one.begin == begin && one.end == end) known = &one;
        }
        if (!known) {
            // A temporary, or a variable whose scope is not known, may be another one by the next store.
            if (!accumulates && !is_declared(me.linear, begin)) continue;
            mine.registers.push_back({begin, end, accumulates, true, 0, 1, nullptr, nullptr});
            mine.events = std::max<uint64_t>(mine.events, 1);
            mine.begin = std::min(mine.begin, begin), mine.end = std::max(mine.end, end);
            known = &mine.registers.back();
        }
        if (known->written > mine.fenced) {
            Failure finding = describe(core, Kind::missing_fence, site);
            finding.other_site = known->writer;
            add(finding.says(accumulates ? "accumulators" : "fragments"));
            known->written = 0;
        }
        known->accumulates = accumulates;
        known->pending = true;
        known->group = me.product_groups;
        known->site = site;
    }
}

// A product may read shared memory when that belongs to another thread block.
void Checker::end_products(Core& core) {
    for (const Registers& one : products_[core.current->linear].registers) {
        if (!one.pending || !one.accumulates || threads_were_killed_) continue;
        add(describe(core, Kind::pending_registers, one.site).says("end"));
    }
}

// Their variable's scope begins or ends: those of the next turn of a loop are others.
void Checker::forget_fragments(uint32_t thread, uintptr_t begin, size_t size) {
    auto& known = products_[thread].registers;
    known.erase(std::remove_if(known.begin(), known.end(), [&](const Registers& one) {
        return !one.accumulates && one.begin - begin < size;
    }), known.end());
}

void Checker::touch_registers(Core& core, uintptr_t address, size_t size, Access kind,
                              const void* site) {
    Products& mine = products_[core.current->linear];
    if (address >= mine.end || address + size <= mine.begin) return;
    for (Registers& one : mine.registers) {
        if (address >= one.end || address + size <= one.begin) continue;
        if (kind != Access::load) one.written = ++mine.events, one.writer = site;
        if (!one.pending || (kind == Access::load && !one.accumulates)) continue;
        Busy busy(core);
        Failure finding = describe(core, Kind::pending_registers, site);
        finding.access = kind;
        finding.other_site = one.site;
        add(finding.says(one.accumulates ? "accumulators" : "fragments"));
    }
}

}  // namespace emulator
