#include "core.h"

#include <stdlib.h>

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

void enter() { this_core->thread_main(); }

}  // namespace

void Core::prepare(const Launch& launch_, const Schedule& schedule) {
    const uint3 extent = launch_.thread_block;
    launch = &launch_;
    count = (uint32_t)volume(extent);
    prepare_blocks();
    if (slots > threads.size()) threads.resize(slots);
    stacks.reserve((int)(count * blocks.size()));
    const uint32_t all = alive_ = count * (uint32_t)blocks.size();
    started_ = 0;
    here = nullptr;
    emulator_place = {{}, {}, extent, launch_.grid};

    order_.resize(all);
    for (uint32_t i = 0; i < all; ++i) {
        const uint32_t nth = schedule.order == Order::reverse ? all - 1 - i : i;
        order_[i] = nth / count * pitch + nth % count;
    }
    if (schedule.order == Order::random) {
        uint64_t random = schedule.seed * 7919 + team_number * 104729 + 1;
        for (uint32_t i = all; i > 1; --i) {
            random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
            std::swap(order_[i - 1], order_[(random >> 33) % i]);
        }
    }
    warps_.assign((slots + 31) / 32, Warp());
    uint3 index = {0, 0, 0};
    Block* block = nullptr;
    for (uint32_t i = 0; i < slots; ++i) {
        Thread& thread = threads[i];
        if (!block || i == block->first + pitch) block = &blocks[i / pitch], index = {0, 0, 0};
        const bool exists = i < block->first + count;
        thread.index = index;
        thread.linear = i;
        thread.block = block;
        thread.state = exists ? State::fresh : State::done;
        thread.killed = thread.fenced = false;
        thread.gathered[0] = thread.gathered[1] = 0;
        thread.polled = nullptr;
        thread.next = nullptr;
        thread.copies.clear();
        thread.copies_started = 0;
        thread.groups = thread.bulk_groups = thread.product_groups = 0;
        if (exists) warps_[i / 32].alive |= 1u << i % 32;
        if (++index.x == extent.x) {
            index.x = 0;
            if (++index.y == extent.y) index.y = 0, ++index.z;
        }
    }
    for (uint32_t i = 0; i < all; ++i) {
        threads[order_[i]].next = &threads[order_[i + 1 == all ? 0 : i + 1]];
    }
}

void Core::run(const Launch& launch_, const Schedule& schedule, uint64_t team_number_) {
    team_number = team_number_;
    prepare(launch_, schedule);
    async.begin_block(schedule.order, schedule.seed);
    if (checking) observer->begin_block(*this);
    Thread* first = &threads[order_[started_++]];
    start(first);
    become(first);
    switch_context(&main_, first->context);
    current = nullptr;
    if (checking) observer->end_block(*this);
}

void Core::become(Thread* thread) {
    current = thread;
    ++switches;
    emulator_place.thread = thread->index;
    if (here == thread->block) return;
    here = thread->block;
    emulator_place.block = here->index;
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
        if (started_ < order_.size()) {  // the next thread takes over this stack
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
    if (alive_ == 0 && started_ == order_.size()) async.end_block();
    Context abandoned;
    current = nullptr;
    switch_context(&abandoned, main_);
    abort();
}

void Core::kill_current() {
    Thread* killed = current;
    killed->killed = true;
    ++killed->block->killed;
    end_thread(killed);
    if (alive_ == 0 && started_ == order_.size()) leave();
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
           (thread->state == State::at_barrier && thread->epoch != thread->block->epoch);
}

// The thread to run next: one that has not started, or else the next in the ring that can run.
// Threads that have ended are removed from the ring here.
Thread* Core::pick(Thread* after) {
    if (started_ < order_.size()) {
        Thread* fresh = &threads[order_[started_++]];
        start(fresh);
        return fresh;
    }
    Thread* before = after;
    for (uint32_t steps = 0; steps <= order_.size(); ++steps) {
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
        stuck();
    }
}

void Core::yield() {
    Thread* next = pick(current);
    if (!next) next = pick_or_advance(current);
    if (next != current) resume(next);
}

void Core::suspend(State state, const void* site, const void* awaited) {
    if (attention) attend(site);
    current->site = site;
    current->awaited = awaited;
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
    const bool varies = checking && async.order() == Order::random;
    for (uint64_t turns = varies ? async.random() % 3 : 1; turns > 0; --turns) yield();
}

void Core::end_thread(Thread* thread) {
    thread->state = State::done;
    async.progress();
    if (checking) observer->thread_ends(*this);
    async.drop_products(*thread);
    --alive_;
    Block& block = *thread->block;
    --block.alive;
    const uint32_t warp = thread->linear / 32;
    warps_[warp].alive &= ~(1u << thread->lane());
    if (block.arrived && block.arrived == block.alive) release_barrier(block);
    for (bool of_grid : {false, true}) {
        Gathering& one = gathering(*thread, of_grid);
        one.left += thread->gathered[of_grid] == one.phase;
        release(one);
    }
    // Lanes that waited for this one need not wait any longer.
    for (uint32_t lane : Lanes{warps_[warp].waiting}) {
        if (warps_[warp].waiting >> lane & 1) try_collective(warp, threads[warp * 32 + lane].mask);
    }
    try_converge(warp);
}

int Core::sync_threads(Vote vote, int predicate, const void* site) {
    if (attention) attend(site);
    Thread* me = current;
    me->site = site;
    Block& block = *me->block;
    me->epoch = block.epoch;
    me->state = State::at_barrier;
    block.votes += predicate != 0;
    ++block.arrived;
    if (checking) observer->arrive(*this, block.arrived == 1);
    if (block.arrived == block.alive) release_barrier(block);
    try_converge(me->linear / 32);
    yield();
    me->state = State::ready;
    switch (vote) {
        case Vote::by_count: return block.released_votes;
        case Vote::by_and: return block.released_votes == block.released_count;
        case Vote::by_or: return block.released_votes != 0;
        case Vote::none: break;
    }
    return 0;
}

void Core::release_barrier(Block& block) {
    async.progress();
    if (checking) observer->pass_barrier(*this);
    block.released_votes = block.votes;
    block.released_count = (int)block.arrived;
    block.votes = 0;
    block.arrived = 0;
    ++block.epoch;
}

// No thread can run and some are waiting: reports each place in which they do, beside another one.
// Those whose lack can be told come first: registers, threads of a warp group, arrivals at an mbarrier
// or a named barrier.
void Core::stuck() {
    std::vector<Thread*> places;
    auto is_same = [](const Thread& a, const Thread& b) {
        return a.site == b.site && a.state == b.state &&
               (a.state != State::at_mbarrier || a.awaited == b.awaited);
    };
    for (uint32_t i = 0; i < slots; ++i) {
        Thread& thread = threads[i];
        bool known = thread.state == State::done || async.waits_for_registers(thread);
        for (const Thread* other : places) known = known || is_same(thread, *other);
        if (!known && places.size() < 16) places.push_back(&thread);
    }
    std::stable_sort(places.begin(), places.end(), [](const Thread* a, const Thread* b) {
        return a->state > b->state && a->state >= State::at_mbarrier;
    });
    for (size_t i = places.size(); i-- > 0;) {
        become(places[i]);
        Failure failure = async.lack(*places[i]);
        if (places.size() > 1) {
            const Thread& other = *places[i == 0];
            failure.beside(other.site, other);
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
    Failure failure = failure_at(why, why == Kind::stack_overflow ? 719 : 702, site);
    if (why == Kind::time_limit && waits_for_another_team()) failure.says("waits");
    fail(*this, failure.of(*current));
}

bool Core::waits_for_another_team() {
    return volume(launch->grid) > blocks.size() && current->polled && !owner(current->polled);
}

}  // namespace emulator
