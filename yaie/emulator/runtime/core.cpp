#include "core.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "failure.h"
#include "observer.h"

extern "C" {
__thread emulator_Place emulator_place __attribute__((tls_model("initial-exec"))) = {};
}

namespace emulator {

__thread Core* this_core __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr size_t rounded_shared = 256 * 1024;  // bytes, whole pages of any size

uint3 index_of(uint64_t linear, uint3 extent) {
    return {(unsigned)(linear % extent.x), (unsigned)(linear / extent.x % extent.y),
            (unsigned)(linear / extent.x / extent.y)};
}

void enter() { this_core->thread_main(); }

}  // namespace

Core::Core() {
    void* memory = mmap(nullptr, rounded_shared + shared_guard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    shared_end_ = static_cast<unsigned char*>(memory) + rounded_shared;
    mprotect(shared_end_, shared_guard, PROT_NONE);
}

void Core::prepare(const Launch& launch_, const Schedule& schedule) {
    const uint3 extent = launch_.thread_block;
    const uint32_t threads_wanted = extent.x * extent.y * extent.z;
    if (threads_wanted > threads.size()) threads.resize(threads_wanted);
    stacks.reserve((int)threads.size());
    count = alive_ = threads_wanted;
    started_ = arrived_ = at_grid_ = 0;
    votes_ = 0;
    launch = &launch_;
    dynamic_shared = shared_end_ - (launch_.shared_bytes + 1023) / 1024 * 1024;
    block = index_of(block_number, launch_.grid);
    emulator_place = {{}, block, extent, launch_.grid};

    order_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
        order_[i] = schedule.order == Order::reverse ? count - 1 - i : i;
    }
    if (schedule.order == Order::random) {
        uint64_t random = schedule.seed * 7919 + block_number * 104729 + 1;
        for (uint32_t i = count; i > 1; --i) {
            random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
            std::swap(order_[i - 1], order_[(random >> 33) % i]);
        }
    }
    uint3 index = {0, 0, 0};
    for (uint32_t i = 0; i < count; ++i) {
        Thread& thread = threads[i];
        thread.index = index;
        thread.linear = i;
        thread.state = State::fresh;
        thread.killed = thread.fenced = false;
        thread.polled = nullptr;
        thread.next = nullptr;
        thread.copies.clear();
        thread.copies_started = 0;
        thread.groups = thread.bulk_groups = thread.product_groups = 0;
        if (++index.x == extent.x) {
            index.x = 0;
            if (++index.y == extent.y) index.y = 0, ++index.z;
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        threads[order_[i]].next = &threads[order_[i + 1 == count ? 0 : i + 1]];
    }
    for (uint32_t warp = 0; warp * 32 < count; ++warp) {
        const uint32_t lanes = count - warp * 32;
        warps_[warp] = {lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1, 0, 0};
    }
}

void Core::run(const Launch& launch_, const Schedule& schedule, uint64_t block_number_) {
    block_number = block_number_;
    prepare(launch_, schedule);
    async.begin_block(schedule.order, schedule.seed);
    if (checking) observer->begin_block(*this, false);
    Thread* first = &threads[order_[started_++]];
    start(first);
    become(first);
    switch_context(&main_, first->context);
    current = nullptr;
    if (checking) observer->end_block(*this);
}

void Core::go_on() {
    for (uint32_t i = 0; i < count; ++i) {
        if (threads[i].state == State::at_grid) threads[i].state = State::ready;
    }
    at_grid_ = 0;
    emulator_place = {{}, block, launch->thread_block, launch->grid};
    if (checking) observer->begin_block(*this, true);
    switch_context(&main_, paused_);
    current = nullptr;
    if (checking) observer->end_block(*this);
}

// All threads wait for the other thread blocks.
void Core::pause() {
    Thread* me = std::exchange(current, nullptr);
    switch_context(&paused_, main_);
    become(me);
}

void Core::sync_grid(const void* site) {
    if (!launch->cooperative) {
        fault(*this, Kind::deadlock, site, nullptr,
              "the grid, which cudaLaunchCooperativeKernel has not launched");
    }
    ++at_grid_;
    suspend(State::at_grid, site);
}

const Thread* Core::waits_for_grid() const {
    for (uint32_t i = 0; at_grid_ && i < count; ++i) {
        if (threads[i].state == State::at_grid) return &threads[i];
    }
    return nullptr;
}

void Core::become(Thread* thread) {
    current = thread;
    ++switches;
    emulator_place.thread = thread->index;
}

void Core::start(Thread* thread) {
    thread->stack = stacks.take();
    thread->context = stacks.start(thread->stack, enter);
    thread->state = State::ready;
}

// Runs threads, one after another, on the stack on which it was started.
void Core::thread_main() {
    for (;;) {
        launch->body(launch->arguments);
        Thread* ended = current;
        end_thread(ended);
        if (started_ < count) {  // the next thread takes over this stack
            become(&threads[order_[started_++]]);
            current->stack = ended->stack;
            current->state = State::ready;
            continue;
        }
        if (alive_ == 0) leave();
        Thread* next = pick_or_advance(ended);
        stacks.give(ended->stack);
        resume(next);
    }
}

void Core::leave() {
    if (alive_ == 0 && started_ == count) async.end_block();
    Context abandoned;
    current = nullptr;
    switch_context(&abandoned, main_);
    abort();
}

void Core::kill_current() {
    Thread* killed = current;
    killed->killed = true;
    end_thread(killed);
    if (alive_ == 0 && started_ == count) leave();
    stacks.give(killed->stack);
    resume(pick_or_advance(killed));
    abort();
}

void Core::resume(Thread* thread) {
    Thread* me = current;
    become(thread);
    switch_context(&me->context, thread->context);
}

bool Core::can_run(const Thread* thread) const {
    return thread->state == State::ready ||
           (thread->state == State::at_barrier && thread->epoch != epoch);
}

// The thread to run next: one that has not started, or else the next in the ring that can run.
// Threads that have ended are removed from the ring here.
Thread* Core::pick(Thread* after) {
    if (started_ < count) {
        Thread* fresh = &threads[order_[started_++]];
        start(fresh);
        return fresh;
    }
    Thread* before = after;
    for (uint32_t steps = 0; steps <= count; ++steps) {
        Thread* thread = before->next;
        if (can_run(thread)) return thread;
        if (thread->state == State::done) {
            before->next = thread->next;
        } else {
            before = thread;
        }
    }
    return nullptr;
}

Thread* Core::pick_or_advance(Thread* after) {
    for (;;) {
        if (Thread* next = pick(after)) return next;
        if (async.advance()) continue;
        if (at_grid_ == 0 || at_grid_ < alive_) stuck();
        pause();
    }
}

void Core::yield() {
    Thread* next = pick(current);
    if (!next) next = pick_or_advance(current);
    if (next != current) resume(next);
}

void Core::suspend(State state, const void* site) {
    if (attention) attend(site);
    current->site = site;
    current->state = state;
    try_converge(current->linear / 32);
    yield();
    current->state = State::ready;
}

void Core::poll(const void* address, const void* site) {
    if (attention) attend(site);
    if (address && address != std::exchange(current->polled, address)) return;
    current->site = site;
    async.tick(true);
    yield();
}

void Core::end_thread(Thread* thread) {
    thread->state = State::done;
    async.progress();
    --alive_;
    const uint32_t warp = thread->linear / 32;
    warps_[warp].alive &= ~(1u << thread->lane());
    if (arrived_ && arrived_ == alive_) release_barrier();
    // Lanes that waited for this one need not wait any longer.
    for (uint32_t lanes = warps_[warp].waiting; lanes; lanes &= lanes - 1) {
        const uint32_t lane = __builtin_ctz(lanes);
        if (warps_[warp].waiting >> lane & 1) try_collective(warp, threads[warp * 32 + lane].mask);
    }
    try_converge(warp);
}

int Core::sync_threads(Vote vote, int predicate, const void* site) {
    if (attention) attend(site);
    Thread* me = current;
    me->site = site;
    me->epoch = epoch;
    me->state = State::at_barrier;
    votes_ += predicate != 0;
    ++arrived_;
    if (checking) observer->arrive(*this, arrived_ == 1);
    if (arrived_ == alive_) release_barrier();
    try_converge(me->linear / 32);
    yield();
    me->state = State::ready;
    switch (vote) {
        case Vote::count: return released_votes_;
        case Vote::both: return released_votes_ == released_count_;
        case Vote::either: return released_votes_ != 0;
        case Vote::none: break;
    }
    return 0;
}

void Core::release_barrier() {
    async.progress();
    if (checking) observer->pass_barrier(*this);
    released_votes_ = votes_;
    released_count_ = (int)arrived_;
    votes_ = 0;
    arrived_ = 0;
    ++epoch;
}

// No thread can run and some are waiting: reports each place in which they do, beside another one.
// Those whose lack can be told come first: registers, threads of a warp group, arrivals at an mbarrier
// or a named barrier.
void Core::stuck() {
    std::vector<const Thread*> places;
    auto is_same = [](const Thread& a, const Thread& b) {
        return a.site == b.site && a.state == b.state &&
               (a.state != State::at_mbarrier || a.awaited == b.awaited);
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Thread& thread = threads[i];
        bool known = thread.state == State::done || async.waits_for_registers(thread);
        for (const Thread* other : places) known = known || is_same(thread, *other);
        if (!known && places.size() < 16) places.push_back(&thread);
    }
    std::stable_sort(places.begin(), places.end(), [](const Thread* a, const Thread* b) {
        return a->state > b->state && a->state >= State::at_mbarrier;
    });
    for (size_t i = places.size(); i-- > 0;) {
        Failure failure = async.lack(*places[i]);
        if (places.size() > 1) {
            const Thread& other = *places[i == 0];
            failure.other_site = other.site;
            failure.other_thread = other.index;
        }
        if (i == 0) fail(*this, failure);
        if (failure.text[0]) note(*this, failure);
    }
    abort();
}

void Core::preempt() {
    Thread* next = pick(current);
    if (next && next != current) resume(next);
}

void Core::attend(const void* site) {
    attention = 0;
    Kind why;
    if (must_stop(why)) stop(why, site);
    preempt();
}

void Core::stop(Kind why, const void* site) {
    Failure failure = {};
    failure.kind = why;
    failure.error = why == Kind::stack_overflow ? 719 : 702;
    failure.site = site;
    failure.thread = current->index;
    fail(*this, failure);
}

}  // namespace emulator
