// Operations in flight, and when they land.
#include "async.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "boxes.h"
#include "core.h"
#include "failure.h"
#include "observer.h"

namespace emulator {
namespace {

constexpr int most_idle_rounds = 8;       // in which all waiting threads ask again, before they fail
constexpr uint64_t most_polls = 4096;  // after which something lands though threads still run

}  // namespace

Failure failure_of(Core& core, Kind kind, const void* site, const void* address, const char* words,
                   ...) {
    Failure failure = failure_at(kind, 719, site);
    failure.block = core.here->index;
    if (core.current) failure.thread = core.current->index;
    failure.address = (uint64_t)address;
    va_list values;
    va_start(values, words);
    vsnprintf(failure.text, sizeof(failure.text), words, values);
    va_end(values);
    if (core.checking && address) observer->locate(failure);
    return failure;
}

void note(Core& core, const Failure& failure) {
    if (core.checking) observer->found(core, failure);
}

void Async::begin_block(Order order, uint64_t seed) {
    order_ = order;
    random_ = seed * 7919 + core_.team_number * 104729 + 1;
    polls_ = 0;
    idle_rounds_ = 0;
    barriers_.clear();
    flights_.clear();
    groups_.assign((core_.slots + warp_group_size - 1) / warp_group_size, WarpGroup());
    for (WarpGroup& group : groups_) group.registers = launch_registers();
}

uint64_t Async::random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
    return random_ >> 33;
}

bool Async::lands_now() {
    return order_ == Order::reverse || (order_ == Order::random && random() % 3 == 0);
}

// At the end of a thread block all lands, even what no thread has waited for.
void Async::end_block() {
    for (const Flight& flight : flights_) {
        if (core_.checking) observer->left(core_, flight);
    }
    core_.current = &core_.threads[0];
    for (uint32_t i = 0; i < core_.slots; ++i) land_copies(core_.threads[i], ~0ull);
    while (land_one()) {}
}

// The newest first, and what threads may be waiting for before what none waits for; or as the seed says.
bool Async::land_one() {
    const size_t flights = flights_.size(), all = flights + groups_.size();
    const size_t first = order_ == Order::random ? random() % all : 0;
    for (bool any : {order_ == Order::random, true}) {
        for (size_t i = 0; i < all; ++i) {
            const size_t index = all - 1 - (first + i) % all;
            if (index < flights) {
                if (flights_[index].landed || !(any || flights_[index].mbarrier)) continue;
                land_at(index);
                return true;
            }
            WarpGroup& group = groups_[index - flights];
            if (group.batches.empty() || !any) continue;
            land_batch(group);
            return true;
        }
    }
    return false;
}

bool Async::advance() {
    if (land_one()) return true;
    if (++idle_rounds_ > most_idle_rounds) return false;
    return core_.wake(State::at_mbarrier);
}

void Async::tick(bool polls) {
    if (flights_.empty()) return;
    if (order_ == Order::random ? random() % 8 == 0 : polls && ++polls_ % most_polls == 0) land_one();
}

// ---------------------------------------------------------------------------------- copy engine

void Async::issue(Flight flight) {
    flight.by = core_.current;
    flight.group = core_.current->bulk_groups;
    if (flight.mbarrier) {
        Barrier& target = barrier(flight.mbarrier, flight.site);
        target.issued += flight.bytes;
        if (flight.bytes) compare_bytes(flight.mbarrier, target, flight.site);
    }
    if (core_.checking) observer->issued(core_, flight);
    core_.busy = 1;
    flights_.push_back(std::move(flight));
    core_.busy = 0;
    if (lands_now()) land_at(flights_.size() - 1);
    if (core_.attention) core_.attend(flights_.empty() ? nullptr : flights_.back().site);
}

// An operation that completes by a group stays in the list until it is waited for. If several mbarriers
// wait for copies of one thread, the one that waits for fewer of them completes first.
void Async::land_at(size_t index) {
    auto is_earlier = [&, last = index](const Flight& one) {
        return !one.moves() && !flights_[last].moves() && one.by == flights_[last].by;
    };
    index = std::find_if(flights_.begin(), flights_.begin() + index, is_earlier) - flights_.begin();
    land(flights_[index]);
    if (flights_[index].mbarrier) flights_.erase(flights_.begin() + index);
}

void Async::land(Flight& flight) {
    flight.landed = true;
    progress();
    landing = flight.site;
    if (flight.box) {
        copy_box(*flight.box);
    } else if (flight.moves()) {
        memcpy(const_cast<void*>(flight.writes[0].begin), flight.reads[0].begin, flight.reads[0].size);
    }
    landing = nullptr;
    uint64_t* address = flight.mbarrier;
    if (!address) return;
    land_copies(*flight.by, flight.copies);
    bool added;
    Barrier& target = barriers_.at((uint64_t)address, &added);
    if (core_.checking) observer->landed(core_, flight);
    target.lacking -= flight.bytes;
    if (!flight.moves() && target.pending) --target.pending;  // of cp.async
    complete_if_done(address, target);
}

void Async::bulk_wait(size_t groups_in_flight, bool only_reads) {
    Thread& me = *core_.current;
    for (size_t i = 0; i < flights_.size(); ++i) {
        Flight& flight = flights_[i];
        if (flight.mbarrier || flight.by != &me ||
            flight.group + groups_in_flight >= me.bulk_groups) {
            continue;
        }
        if (!flight.landed) land(flight);
        flight.reads_seen = true;
        if (core_.checking) observer->waited(core_, flight, only_reads);
        if (!only_reads) flights_.erase(flights_.begin() + i--);
    }
}

// ------------------------------------------------------------------------------------ cp.async

// Arrives at the mbarrier once all copies that the thread has started so far have landed.
void Async::copies_arrive(uint64_t* address, bool counted, const void* site) {
    Barrier& target = barrier(address, site);
    if (counted) ++target.pending;
    Flight flight = {};
    flight.mbarrier = address;
    flight.copies = core_.current->copies_started;
    flight.site = site;
    issue(std::move(flight));
}

}  // namespace emulator

using namespace emulator;

extern "C" {

#define SITE __builtin_return_address(0)

void emulator_mbarrier_init(uint64_t* barrier, uint32_t count) {
    this_core->async.mbarrier_init(barrier, count, SITE);
}
void emulator_mbarrier_inval(uint64_t* barrier) { this_core->async.mbarrier_inval(barrier, SITE); }
uint64_t emulator_mbarrier_arrive(uint64_t* barrier, uint32_t count, uint32_t bytes, int drops) {
    return this_core->async.mbarrier_arrive(barrier, count, bytes, drops, SITE);
}
void emulator_mbarrier_complete(uint64_t* barrier, uint32_t bytes) {
    this_core->async.mbarrier_complete(barrier, bytes, SITE);
}
int emulator_mbarrier_wait(uint64_t* barrier, uint64_t phase, int by_parity) {
    return this_core->async.mbarrier_wait(barrier, phase, by_parity, SITE);
}
void emulator_named_barrier(int id, int threads, int waits) {
    this_core->async.named_barrier(id, threads, waits, SITE);
}
void emulator_bulk_commit() { ++this_core->current->bulk_groups; }
void emulator_bulk_wait(size_t groups_in_flight, int only_reads) {
    this_core->async.bulk_wait(groups_in_flight, only_reads);
    if (this_core->attention) this_core->attend(SITE);
}
void emulator_copies_arrive(uint64_t* barrier, int counted) {
    this_core->async.copies_arrive(barrier, counted, SITE);
}
void emulator_issue_product(const Product* product) {
    this_core->async.issue_product(*product, SITE);
}
void emulator_product_fence() {
    if (this_core->checking) observer->product_fence(*this_core);
}
void emulator_product_commit() { ++this_core->current->product_groups; }
void emulator_product_wait(size_t groups_in_flight) {
    this_core->async.product_wait(groups_in_flight);
    if (this_core->attention) this_core->attend(SITE);
}
void emulator_fence_async(int proxies) {
    if (this_core->checking) observer->fence_async(*this_core, proxies);
}
void emulator_set_registers(int increases, int registers) {
    this_core->async.set_registers(increases, registers, SITE);
}
}
