// What the 128 threads of a warp group do together: products (wgmma) and changes of their registers.
#include <string.h>

#include <algorithm>

#include "core.h"
#include "failure.h"
#include "observer.h"

namespace emulator {

// Waits until the whole warp group is here. True for the last thread, which acts for all.
bool Async::meet(const void* mine, const void* site) {
    Thread& me = *core_.current;
    const uint32_t first = me.linear / warp_group_size * warp_group_size;
    WarpGroup& group = groups_[me.linear / warp_group_size];
    if (core_.count < first - me.block->first + warp_group_size) {
        fault(core_, Kind::warp_group, site, nullptr,
              "needs the 128 threads of a warp group: this one has %u", core_.count - (first - me.block->first));
    }
    if (group.arrived && group.site != site) {
        Failure failure = failure_of(core_, Kind::warp_group, site, nullptr,
                                     "the threads of a warp group are at different instructions");
        note(core_, failure.beside(group.site, *group.first));
    }
    if (!group.arrived) group.site = site, group.first = &me;
    group.members[me.linear - first] = mine;
    me.site = site;
    if (++group.arrived < warp_group_size) {
        core_.suspend(State::at_group, site);
        return false;
    }
    group.arrived = 0;
    return true;
}

void Async::release(WarpGroup& group) {
    progress();
    for (uint32_t i = 0; i < warp_group_size; ++i) {
        core_.threads[(&group - groups_.data()) * warp_group_size + i].state = State::ready;
    }
}

void Async::issue_product(const Product& mine, const void* site) {
    tick();
    for (size_t i = 0; core_.checking && i < mine.num_accumulators; ++i) {
        observer->filled(core_, mine.accumulators[i].begin, mine.accumulators[i].size);
    }
    if (!meet(&mine, site)) return;
    const uint32_t number = core_.current->linear / warp_group_size;
    WarpGroup& group = groups_[number];
    if (core_.checking) observer->product_issued(core_, number * warp_group_size, group.members);
    core_.busy = 1;
    Batch batch = {mine.perform, {}, {}, {}, core_.current->product_groups, site};
    const size_t each = (mine.data_size + 15) / 16 * 16;
    batch.data.resize(each * warp_group_size);
    for (uint32_t i = 0; i < warp_group_size; ++i) {
        const auto& one = *static_cast<const Product*>(group.members[i]);
        batch.pointers.push_back(&batch.data[each * i]);
        memcpy(batch.pointers[i], one.data, one.data_size);
        batch.accumulators.insert(batch.accumulators.end(), one.accumulators,
                                  one.accumulators + one.num_accumulators);
    }
    for (const Span& span : batch.accumulators) hide(group, span);
    group.batches.push_back(std::move(batch));
    core_.busy = 0;
    release(group);
    while (!group.batches.empty() && lands_now()) land_batch(group);
}

// Accumulators show NaN as long as a product that adds to them is in flight.
void Async::hide(WarpGroup& group, const Span& span) {
    bool added;
    Hidden& hidden = group.hidden.at((uint64_t)span.begin, &added);
    if (hidden.by++) return;
    const char* from = static_cast<const char*>(span.begin);
    hidden.value.assign(from, from + span.size);
    memset(const_cast<char*>(from), 0xff, span.size);
}

// The oldest product of the warp group lands.
void Async::land_batch(WarpGroup& group) {
    progress();
    Batch batch = std::move(group.batches.front());
    group.batches.erase(group.batches.begin());
    bool added;
    for (const Span& span : batch.accumulators) {
        const Hidden& hidden = group.hidden.at((uint64_t)span.begin, &added);
        memcpy(const_cast<void*>(span.begin), hidden.value.data(), span.size);
    }
    const bool checking = std::exchange(core_.checking, false);
    landing = batch.site;
    batch.perform(batch.pointers.data());
    landing = nullptr;
    core_.checking = checking;
    for (const Span& span : batch.accumulators) {
        Hidden& hidden = group.hidden.at((uint64_t)span.begin, &added);
        const uint32_t others = hidden.by - 1;
        hidden.by = 0;
        if (others) hide(group, span), hidden.by = others;
    }
}

void Async::product_wait(size_t groups_in_flight) {
    Thread& me = *core_.current;
    WarpGroup& group = groups_[me.linear / warp_group_size];
    while (!group.batches.empty() &&
           group.batches.front().group + groups_in_flight < me.product_groups) {
        land_batch(group);
    }
    if (core_.checking) observer->product_waited(core_, groups_in_flight);
}

// Products that a thread has not waited for when it ends are never done: its registers are gone.
void Async::drop_products(const Thread& ended) {
    WarpGroup& group = groups_[ended.linear / warp_group_size];
    if (!group.batches.empty()) group.batches.clear(), group.hidden.clear();
}

// --------------------------------------------------------------------------------- setmaxnreg

void Async::set_registers(bool increases, int registers, const void* site) {
    if (registers < 24 || registers > 256 || registers % 8) {
        fault(core_, Kind::register_budget, site, nullptr,
              "setmaxnreg asks for %d registers: a multiple of 8 from 24 to 256 is possible",
              registers);
    }
    if (!meet(nullptr, site)) return;
    Thread& me = *core_.current;
    WarpGroup& group = groups_[me.linear / warp_group_size];
    const int before = group.registers;
    // How many the compiler has chosen for the kernel is not known, so the first change is right.
    if (group.changed && (increases ? registers < before : registers > before)) {
        fault(core_, Kind::register_budget, site, nullptr,
              "setmaxnreg.%s asks for %d registers per thread, and the warp group has %d",
              increases ? "inc" : "dec", registers, before);
    }
    while (others_registers(group) + registers > registers_of_block()) {
        me.parameter = registers;
        core_.suspend(State::at_registers, site);
    }
    group.registers = registers;
    group.changed = true;
    release(group);
    if (!increases) core_.wake(State::at_registers);
}

bool Async::waits_for_registers(const Thread& thread) const {
    return thread.state == State::at_group &&
           groups_[thread.linear / warp_group_size].arrived == 0;
}

int Async::others_registers(const WarpGroup& group) const {
    int sum = -group.registers;
    const size_t all = groups_.size() / core_.blocks.size(), number = &group - &groups_[0];
    for (size_t i = number / all * all; i < number / all * all + all; ++i) sum += groups_[i].registers;
    return sum;
}

// Those with which the thread block was launched, in registers per thread of one warp group.
int Async::registers_of_block() const {
    return launch_registers() * (int)(groups_.size() / core_.blocks.size());
}

// As many as fit for all its threads into an SM, which __launch_bounds__(threads, 1) lets it have.
int Async::launch_registers() const {
    const int fitting = (int)(65536 / core_.count) / 8 * 8;
    return fitting < 256 ? fitting : 256;
}

}  // namespace emulator
