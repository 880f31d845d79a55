#include "checker.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "calls.h"
#include "grid.h"
#include "memory.h"

extern "C" void emulator_check_begin();

namespace emulator {

Checker checker;

namespace {

constexpr size_t most_findings = 256;
constexpr uintptr_t nearby = 1 << 22;  // an address this close to a range was probably meant for it

bool by_begin(const Range& a, const Range& b) { return a.begin < b.begin; }

}  // namespace

void Checker::begin() {
    end();
    findings.clear();
    untracked.clear();
    barriers = 0;
    counters.clear();
    for (const Allocation& memory : allocations) {
        add_range(memory.begin, memory.bytes, from_malloc, memory.on_host);
    }
    observer = this;
    static const Code own = code_around(reinterpret_cast<void*>(emulator_check_begin));
    code = own;
}

void Checker::end() {
    observer = nullptr;
    for (const Allocation& memory : kept_) release(memory);
    kept_.clear();
    bytes_kept_ = 0;
    ranges_.clear();
    symbols_.clear();
    variables_.clear();
    static_shadows_.clear(), dynamic_shadows_.clear();
    num_shadows_ = 0;
    for (size_t i = 0; i < shadows_.size(); ++i) {
        if (!shadows_[i]->is_large()) continue;
        delete shadows_[i];
        shadows_.erase(shadows_.begin() + i--);
    }
}

Shadow* Checker::take_shadow(size_t bytes) {
    if (num_shadows_ == shadows_.size()) shadows_.push_back(new Shadow);
    Shadow* shadow = shadows_[num_shadows_++];
    shadow->cover(bytes);
    return shadow;
}

void Checker::add_range(void* begin, size_t size, int id, bool on_host, uint32_t since) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
    ranges_.push_back({address, address + size, Memory::global, true, id, take_shadow(size), on_host,
                       since});
    std::sort(ranges_.begin(), ranges_.end(), by_begin);
    last_found_ = 0;
}

void Checker::add_symbol(size_t offset, size_t size, const char* kernel, int id) {
    symbols_.push_back({offset, size, kernel, id});
}

const Range* Checker::find(uintptr_t address, size_t size) {
    if (last_found_ < ranges_.size()) {
        const Range& range = ranges_[last_found_];
        if (range.holds(address, size)) return &range;
    }
    auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                  [](uintptr_t a, const Range& r) { return a < r.begin; });
    while (after != ranges_.begin()) {
        --after;
        if (after->holds(address, size)) {
            last_found_ = after - ranges_.begin();
            return &*after;
        }
        if (after->end != after->begin) break;  // an empty range may hide the one before it
    }
    return nullptr;
}

void Checker::begin_launch() {
    first_block_ = ++next_block_;  // a crash may have ended the last launch before its end
    teams_.clear();
    threads_were_killed_ = false;
    order_.begin_launch();
}

bool Checker::arrays_have_owners() {
    return std::none_of(symbols_.begin(), symbols_.end(),
                        [](const SharedSymbol& symbol) { return symbol.kernel.empty(); });
}

// Makes ranges of the shared arrays of this launch. The compiled file holds the arrays of all its
// kernels side by side, so only those that this kernel can access are added.
void Checker::add_shared(const Core& core) {
    const Launch& launch = *core.launch;
    ranges_.erase(std::remove_if(ranges_.begin(), ranges_.end(),
                                 [](const Range& range) { return range.memory != Memory::global; }),
                  ranges_.end());
    const Module module = module_around(reinterpret_cast<const void*>(launch.body));
    const std::string kernel = base_name(launch.name);
    for (size_t i = 0; i < core.blocks.size(); ++i) {
        const Block& block = core.blocks[i];
        if (i == static_shadows_.size()) static_shadows_.push_back(take_shadow(module.shared_size));
        if (i == dynamic_shadows_.size()) dynamic_shadows_.push_back(take_shadow(most_shared));
        const uintptr_t base = module.shared + block.shift;
        for (const SharedSymbol& symbol : symbols_) {
            if (!symbol.kernel.empty() && symbol.kernel != kernel) continue;
            const uintptr_t begin = base + symbol.offset;
            ranges_.push_back({begin, begin + symbol.size, Memory::shared, true, symbol.id,
                               static_shadows_[i], false, 0, (int)i, base});
        }
        const uintptr_t begin = reinterpret_cast<uintptr_t>(block.dynamic_shared);
        ranges_.push_back({begin, begin + launch.shared_bytes, Memory::shared, true, dynamic_shared,
                           dynamic_shadows_[i], false, 0, (int)i});
    }
    for (const Module::Segment& one : module.segments) {
        ranges_.push_back({one.begin, one.end, Memory::module, one.writable, variables, nullptr});
        if (one.writable) ranges_.back().shadow = variable_shadow(ranges_.back());
    }
    std::sort(ranges_.begin(), ranges_.end(), by_begin);
    last_found_ = 0;
}

Shadow* Checker::variable_shadow(const Range& segment) {
    for (const auto& known : variables_) {
        if (known.first == segment.begin) return known.second;
    }
    variables_.push_back({segment.begin, take_shadow(segment.end - segment.begin)});
    return variables_.back().second;
}

void Checker::begin_block(Core& core) {
    if (next_block_ == first_block_) add_shared(core);
    teams_.push_back(core.team_number);
    order_.begin_block(core.slots, core.pitch);
    begin_async(core);
    if (loaded_.size() < core.slots) loaded_.resize(core.slots);
    updates_.assign(core.slots, Update());
    if (own_.size() < core.slots) own_.resize(core.slots), unset_.resize(core.slots);
    any_unset_ = false;
    counters.begin_block(core.slots);
    for (const Range& range : ranges_) {
        if (range.memory != Memory::shared) continue;
        memset(reinterpret_cast<void*>(range.begin), 0xff, range.end - range.begin);  // NaN
    }
}

void Checker::end_block(Core& core) {
    settle_all();
    for (uint32_t i = 0; any_unset_ && i < core.slots; ++i) forget_unset(core, i);
    end_async(core);
    if (!given_up()) {  // what an endless loop has cost tells nothing, and takes long to count
        for (uint32_t warp = 0; warp * 32 < core.slots; ++warp) counters.flush(core, warp);
    }
    ++next_block_;
}

// ------------------------------------------------------------------------------- findings

Failure Checker::describe(Core& core, Kind kind, const void* site) const {
    Failure finding = failure_at(kind, 0, site);
    finding.block = core.here->index;
    if (core.current) finding.thread = core.current->index;
    return finding;
}

// About what is at an address.
Failure Checker::describe(Core& core, Kind kind, const void* site, const void* address) {
    Failure finding = describe(core, kind, site);
    finding.address = reinterpret_cast<uintptr_t>(address);
    locate(finding);
    return finding;
}

// About an access to a range.
Failure Checker::describe(Core& core, Kind kind, const void* site, const Range& range,
                          uintptr_t address, size_t size, Access access) const {
    Failure finding = describe(core, kind, site);
    finding.memory = range.memory;
    finding.range = range.id;
    finding.offset = (int64_t)(address - range.begin);
    finding.address = address;
    finding.access = access;
    finding.size = (int)size;
    finding.extent = core.launch->shared_bytes;
    finding.owner = owner_of(core, range);
    return finding;
}

int Checker::owner_of(const Core& core, const Range& range) {
    if (core.cluster == 1 || range.block < 0 || core.here == &core.blocks[range.block]) return 0;
    return 1 + (int)core.rank_of(core.blocks[range.block]);
}

// Keeps one finding per kind and pair of source locations, and counts the repetitions.
void Checker::add(const Failure& finding) {
    for (Failure& known : findings) {
        if (known.kind == finding.kind && known.site == finding.site &&
            known.other_site == finding.other_site && known.memory == finding.memory) {
            ++known.count;
            return;
        }
    }
    if (findings.size() == most_findings) return;
    findings.push_back(finding);
    findings.back().count = 1;
}

// The access would corrupt memory, so its thread ends here. What the thread no longer does is not
// reported.
void Checker::refuse(Core& core, Failure finding) {
    if (any_unset_) settle_own(core.current->linear);
    add(finding);
    threads_were_killed_ = true;
    forget_unset(core, core.current->linear);
    core.busy = 0;
    core.kill_current();
}

Failure Checker::out_of_bounds(Core& core, uintptr_t address, size_t size, Access kind,
                               const void* site) const {
    const Range nowhere = {address, address, Memory::none, false, unknown, nullptr};
    const Range* meant = &nowhere;
    uintptr_t closest = nearby;
    for (const Range& range : ranges_) {
        const uintptr_t distance = address < range.begin ? range.begin - address
                                   : address < range.end ? 0
                                                         : address - range.end;
        if (range.memory == Memory::module || distance >= closest) continue;
        closest = distance;
        meant = &range;
    }
    return describe(core, Kind::out_of_bounds, site, *meant, address, size, kind);
}

// ------------------------------------------------------------------------------- accesses

void Checker::access(Core& core, uintptr_t address, size_t size, Access kind, const void* site,
                     Manner manner) {
    Thread& thread = *core.current;
    if (core.stacks.holds(thread.stack, reinterpret_cast<void*>(address))) {
        if (any_products_) touch_registers(core, address, size, kind, site);
        if (any_unset_) touch_own(core, address, size, kind, site);
        return;
    }
    if (address - reinterpret_cast<uintptr_t>(core.launch->arguments) <
        core.launch->arguments_size) {
        return;
    }
    Busy busy(core);
    if (stored_.open) settle_store();
    if (any_unset_ && kind != Access::load) settle_own(thread.linear);
    const Range* range = find(address, size);
    if (!range || range->id == is_free || (kind != Access::load && !range->writable)) {
        refuse(core, out_of_bounds(core, address, size, kind, site));
    }
    if (size <= 16 && (size & (size - 1)) == 0 && address % size != 0) {
        refuse(core, describe(core, Kind::misaligned, site, *range, address, size, kind));
    }
    const uint16_t index = counters.site(site, range->memory, kind, (int)size, range->id);
    if (range->shadow) look_for_race(core, *range, address, size, kind, index, manner);
    if (range->memory == Memory::module) return;
    if (kind == Access::store) thread.fenced = false;
    counters.note(thread.linear, index, address, range->begin);
}

// ------------------------------------------------------------------------------- meetings

void Checker::arrive(Core& core, bool first) {
    Busy busy(core);
    if (first) {
        core.here->first_arrived = core.current;
        return;
    }
    const Thread* first_arrived = core.here->first_arrived;
    if (first_arrived->site == core.current->site) return;
    // Python drops the finding if both sites are on one line: the compiler may have duplicated it.
    add(describe(core, Kind::divergent_barrier, core.current->site)
            .beside(first_arrived->site, *first_arrived));
}

// All threads of a range of slots wait for each other.
void Checker::synchronize(const Core& core, uint32_t first, uint32_t end) {
    if (first == 0 && end + core.pitch > core.slots) {
        order_.barrier();
    } else {
        order_.barrier(first, end);
    }
}

void Checker::pass_barrier(Core& core) {
    Busy busy(core);
    ++barriers;
    settle_all();
    const uint32_t first = core.here->first, end = first + core.count;
    synchronize(core, first, end);
    const Thread& arrived = *core.here->first_arrived;
    for (uint32_t i = first; i < end && !threads_were_killed_; ++i) {
        if (core.threads[i].state != State::done) continue;
        add(describe(core, Kind::divergent_barrier, arrived.site)
                .of(arrived)
                .beside(nullptr, core.threads[i]));
        break;
    }
    for (uint32_t warp = first / 32; warp * 32 < end; ++warp) counters.flush(core, warp);
}

void Checker::meet(Core& core, uint32_t warp, uint32_t lanes, bool whole_warp) {
    Busy busy(core);
    if (whole_warp) counters.flush(core, warp);
    const Thread& first = core.threads[warp * 32 + __builtin_ctz(lanes)];
    if (first.operation == Collective::sync) order_.join(warp, lanes);
    for (uint32_t lane : Lanes{lanes}) {
        const Thread& thread = core.threads[warp * 32 + lane];
        const bool both_sync =
            thread.operation == Collective::sync && first.operation == Collective::sync;
        if (both_sync || thread.site == first.site) continue;
        Failure finding = describe(core, Kind::divergent_collective, thread.site);
        finding.of(thread).beside(first.site, first).offset = thread.operation != first.operation;
        add(finding);
    }
}

void Checker::fence(Core& core, bool device) {
    Busy busy(core);
    const bool had = std::exchange(core.current->fenced, true);
    order_.fence(core.current->linear, device, !had);
}

void Checker::outside_own_mask(Core& core) {
    Busy busy(core);
    Failure finding = describe(core, Kind::wrong_mask, core.current->site);
    finding.offset = core.current->lane();
    add(finding);
}

void Checker::inactive_lane(Core& core, const Thread& thread, uint32_t source) {
    Busy busy(core);
    if (threads_were_killed_ || thread.outside_mask) return;
    Failure finding = describe(core, Kind::inactive_lane, thread.site).of(thread);
    finding.offset = source;
    finding.address = thread.mask;
    add(finding);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// ------------------------------------------------------------------ for Python (runtime.py)

void emulator_check_begin() { checker.begin(); }
void emulator_check_end() { checker.end(); }
void emulator_check_range(void* begin, size_t size, int id, int on_host) {
    checker.add_range(begin, size, id, on_host != 0);
}
void emulator_check_unwritten(void* begin, size_t size, size_t item) {
    checker.find_unwritten(reinterpret_cast<uintptr_t>(begin), size, item);
}
void emulator_check_symbol(size_t offset, size_t size, const char* kernel, int id) {
    checker.add_symbol(offset, size, kernel, id);
}
size_t emulator_num_findings() { return checker.findings.size(); }
void emulator_finding(size_t index, Failure* finding) { *finding = checker.findings[index]; }
size_t emulator_num_sites() { return checker.counters.sites.size(); }
void emulator_site(size_t index, Site* site) { *site = checker.counters.sites[index]; }
size_t emulator_num_untracked() { return checker.untracked.size(); }
int emulator_untracked(size_t index) { return checker.untracked[index]; }
size_t emulator_num_barriers() { return checker.barriers; }
int emulator_counters_truncated() { return checker.counters.truncated; }
}
