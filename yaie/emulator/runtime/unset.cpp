// Local variables that are read before they have a value. Of each byte of a thread's stack a mark is
// kept while its variable is in scope: whether the byte has no value yet.
#include <string.h>

#include <algorithm>

#include "checker.h"

namespace emulator {
namespace {

template <class Word>
bool is_zero(const unsigned char* bytes) {
    Word word;
    memcpy(&word, bytes, sizeof(word));
    return word == 0;
}

bool is_zero(const unsigned char* bytes, size_t size) {
    return size == 4 ? is_zero<uint32_t>(bytes) : size == 8 && is_zero<uint64_t>(bytes);
}

}  // namespace

void Checker::unset(Core& core, void* variable, size_t size, size_t item, const char* name) {
    Thread& thread = *core.current;
    if (!core.stacks.holds(thread.stack, variable)) return;
    Busy busy(core);
    std::vector<Unset>& all = unset_[thread.linear];
    const uintptr_t begin = reinterpret_cast<uintptr_t>(variable);
    if (item) {
        any_unset_ = true;
        all.push_back({begin, size, item, name});
    } else {
        while (!all.empty() && all.back().begin != begin) all.pop_back();
        if (all.empty()) return;
        size = all.back().size;
        all.pop_back();
    }
    memset(core.stacks.marks(variable), item != 0 && name, size);
    if (any_products_) forget_fragments(thread.linear, begin, size);
}

bool Checker::is_declared(uint32_t thread, uintptr_t address) const {
    for (const Unset& one : unset_[thread]) {
        if (address - one.begin < one.size) return true;
    }
    return false;
}

void Checker::filled(Core& core, const void* begin, size_t size) {
    if (any_unset_ && core.stacks.holds(core.current->stack, begin)) {
        memset(core.stacks.marks(begin), 0, size);
    }
}

// An access to the thread's own stack. A value that a shuffle takes from a lane that has none is no
// fault yet: most often no lane asks for it.
void Checker::touch_own(Core& core, uintptr_t address, size_t size, Access kind, const void* site) {
    Busy busy(core);
    const uint32_t me = core.current->linear;
    unsigned char* marks = core.stacks.marks(reinterpret_cast<void*>(address));
    const void* found = is_zero(marks, size) ? nullptr : memchr(marks, 1, size);
    const auto* first = static_cast<const unsigned char*>(found);
    if (kind == Access::store) {
        settle_own(me);
        if (first) memset(marks, 0, size);
        return;
    }
    if (!first) return;
    memset(marks, 0, size);  // tell it once
    if (threads_were_killed_) return;
    settle_own(me);
    Failure finding = describe(core, Kind::uninitialized, site);
    address += (uintptr_t)(first - marks);
    for (const Unset& one : unset_[me]) {
        if (address - one.begin >= one.size) continue;
        finding.size = (int)one.item;
        finding.offset = (int64_t)(address - one.begin);
        finding.extent = one.size;
        finding.says(one.name);
    }
    own_[me] = {true, address, size - (size_t)(first - marks), {}, finding};
}

void Checker::settle_own(uint32_t thread) {
    if (own_[thread].open) add(own_[thread].finding);
    own_[thread].open = false;
}

void Checker::collective(Core& core) {
    if (!any_unset_) return;
    Doubt& doubt = own_[core.current->linear];
    if (doubt.open) memset(core.stacks.marks(reinterpret_cast<void*>(doubt.address)), 1, doubt.size);
    doubt.open = false;
}

// Of a thread that ends where it is.
void Checker::forget_unset(Core& core, uint32_t thread) {
    for (const Unset& one : unset_[thread]) {
        memset(core.stacks.marks(reinterpret_cast<void*>(one.begin)), 0, one.size);
    }
    unset_[thread].clear();
    own_[thread].open = false;
}

}  // namespace emulator

using namespace emulator;

extern "C" {
void emulator_begin_unset(void* variable, size_t size, size_t item, const char* name) {
    Core* core = this_core;
    if (core && core->checking && core->current) checker.unset(*core, variable, size, item, name);
}
void emulator_end_unset(void* variable) { emulator_begin_unset(variable, 0, 0, nullptr); }
}
