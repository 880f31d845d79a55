// mbarriers and named barriers.
//
// A phase of an mbarrier is complete once as many threads have arrived as it expects and as many bytes
// have come as were announced; the next one begins then. Its state is kept here; the word in shared
// memory only shows that nothing else was written there.
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "failure.h"
#include "observer.h"

namespace emulator {
namespace {

constexpr uint32_t most = (1 << 20) - 1;  // arrivals, and bytes pending

uint64_t mark_of(const uint64_t* address) { return (uint64_t)address * 0x9e3779b97f4a7c15u | 1; }

}  // namespace

Barrier& Async::barrier(uint64_t* address, const void* site) {
    bool added;
    Barrier& found = barriers_.at((uint64_t)address, &added);
    if (!found.valid) {
        fault(core_, Kind::mbarrier, site, address, "is used as an mbarrier and is not initialized");
    }
    if (*address != mark_of(address)) {
        fault(core_, Kind::mbarrier, site, address,
              "is used as an mbarrier after it was overwritten");
    }
    return found;
}

void Async::mbarrier_init(uint64_t* address, uint32_t count, const void* site) {
    if ((uintptr_t)address % 8) {
        fault(core_, Kind::mbarrier, site, address, "an mbarrier is aligned to 8 bytes");
    }
    if (count < 1 || count > most) {
        fault(core_, Kind::mbarrier, site, address,
              "is initialized for %u arrivals: 1 to %u are possible", count, most);
    }
    check_own(address, "can initialize it", site);
    bool added;
    Barrier& found = barriers_.at((uint64_t)address, &added);
    if (found.valid && *address == mark_of(address)) {
        fault(core_, Kind::mbarrier, site, address,
              "is initialized again, with no mbarrier.inval in between");
    }
    if (core_.checking) observer->mbarrier_made(core_, address, site);
    found = {true, count, count, 0, 0, 0, 0};
    *address = mark_of(address);
}

void Async::mbarrier_inval(uint64_t* address, const void* site) {
    Barrier& found = barrier(address, site);
    if (core_.checking) observer->mbarrier_made(core_, address, site);
    found.valid = false;
}

uint64_t Async::mbarrier_arrive(uint64_t* address, uint32_t count, uint32_t bytes, bool drops,
                                const void* site) {
    tick();
    Barrier& found = barrier(address, site);
    if (core_.checking) {
        observer->mbarrier_used(core_, address, site);
        if (count) observer->gives(core_, address, true);
    }
    found.announced += bytes;
    found.lacking += bytes;
    if (found.lacking > most) {
        fault(core_, Kind::mbarrier, site, address, "expects %lld bytes: at most %u are possible",
              (long long)found.lacking, most);
    }
    const uint64_t phase = found.phase;
    if (count > found.pending) {
        fault(core_, Kind::mbarrier, site, address,
              "gets %u arrivals where its phase lacks %u", count, found.pending);
    }
    found.pending -= count;
    if (drops) found.expected -= count;
    compare_bytes(address, found, site);
    complete_if_done(address, found);
    return phase;
}

void Async::mbarrier_complete(uint64_t* address, uint32_t bytes, const void* site) {
    Barrier& found = barrier(address, site);
    if (core_.checking) observer->mbarrier_used(core_, address, site);
    found.issued += bytes;
    found.lacking -= bytes;
    compare_bytes(address, found, site);
    complete_if_done(address, found);
}

// All threads of the phase have arrived and more bytes are on their way than were announced: the phase
// completes before they have come, or never.
void Async::compare_bytes(uint64_t* address, const Barrier& found, const void* site) {
    if (found.pending || found.issued <= found.announced) return;
    note(core_, failure_of(core_, Kind::transaction_bytes, site, address,
                           "gets %lld bytes in this phase, of which its threads expect %lld",
                           (long long)found.issued, (long long)found.announced));
}

void Async::complete_if_done(uint64_t* address, Barrier& found) {
    if (found.pending || found.lacking) return;
    ++found.phase;
    found.pending = found.expected;
    found.announced = found.issued = 0;
    progress();
    if (core_.checking) observer->completes(core_, address);
    core_.wake(State::at_mbarrier, address);
}

void Async::check_own(const uint64_t* address, const char* does, const void* site) {
    if (core_.cluster == 1 || core_.owner(address) == core_.here) return;
    fault(core_, Kind::mbarrier, site, address,
          "is another thread block's, and only a thread of that block %s", does);
}

// A thread that asks for the first time is told how things are; a loop waits from the second time on.
bool Async::mbarrier_wait(uint64_t* address, uint64_t phase, bool by_parity, const void* site) {
    Thread& me = *core_.current;
    tick();
    check_own(address, "can wait for it", site);
    auto is_complete = [&] {
        const uint64_t present = barrier(address, site).phase;
        return by_parity ? (present & 1) != (phase & 1) : present > phase;
    };
    if (core_.checking) observer->mbarrier_used(core_, address, site);
    if (!is_complete()) {
        const bool again = me.polled == address;
        me.polled = address;
        me.phase = by_parity ? barrier(address, site).phase : phase;
        core_.suspend(again ? State::at_mbarrier : State::ready, site, address);
        if (!again || !is_complete()) return false;
    }
    me.polled = nullptr;
    if (core_.checking) observer->takes(core_, address, me.linear);
    return true;
}

void Async::named_barrier(int id, int threads, bool waits, const void* site) {
    Thread& me = *core_.current;
    tick();
    const int all = (int)(core_.count + 31) / 32 * 32;
    if (threads == 0) threads = all;
    if (id < 0 || id >= num_named) {
        fault(core_, Kind::barrier_count, site, nullptr,
              "there is no barrier %d: a thread block has the barriers 0 to 15", id);
    }
    if (threads < 0 || threads % 32) {
        fault(core_, Kind::barrier_count, site, nullptr,
              "barrier %d is to have %d threads, which is no multiple of 32", id, threads);
    }
    if (threads > all) {
        fault(core_, Kind::barrier_count, site, nullptr,
              "barrier %d is to have %d threads, and the thread block has %u", id, threads,
              core_.count);
    }
    if (id == 0 && waits && threads == all && !me.block->named[0].arrived) {
        core_.sync_threads(Vote::none, 0, site);
        return;
    }
    Named& here = me.block->named[id];
    if (here.arrived && here.threads != (uint32_t)threads) {
        Failure failure = failure_of(core_, Kind::barrier_count, site, nullptr,
                                     "barrier %d gets %d threads here and %u at the other place", id,
                                     threads, here.threads);
        fail(core_, failure.beside(here.site, *here.first));
    }
    if (!here.arrived) here = {(uint32_t)threads, 0, site, &me};
    if (core_.checking) observer->gives(core_, &here, true);
    me.site = site;
    if (++here.arrived < here.threads) {
        if (waits) core_.suspend(State::at_named, site, &here);
        return;
    }
    here.arrived = 0;
    progress();
    if (core_.checking) observer->completes(core_, &here);
    if (waits) me.state = State::at_named, me.awaited = &here;
    core_.wake(State::at_named, &here, [&](Thread& thread) {
        if (core_.checking) observer->takes(core_, &here, thread.linear);
    });
}

// The failure of a thread that waits for ever; its text says what it waits for, where that is known.
Failure Async::lack(const Thread& thread) {
    Kind kind = Kind::deadlock;
    const void* about = nullptr;
    char text[200] = "";
    auto say = [&](const char* words, auto... values) {
        const size_t length = strlen(text);
        snprintf(text + length, sizeof(text) - length, words, values...);
    };
    const WarpGroup& group = groups_[thread.linear / warp_group_size];
    if (thread.state == State::at_mbarrier) {
        bool added;
        about = thread.awaited;
        const Barrier& found = barriers_.at((uint64_t)about, &added);
        say("phase %llu (parity %d)", (unsigned long long)thread.phase, (int)(thread.phase & 1));
        if (found.pending) say(" lacks %u of %u arrivals", found.pending, found.expected);
        if (found.pending && found.lacking) say(" and");
        if (found.lacking > 0) {
            say("%s %lld of %lld bytes", found.pending ? "" : " lacks", (long long)found.lacking,
                (long long)found.announced);
        } else if (found.lacking < 0) {
            say(" has got %lld bytes more than it expects", (long long)-found.lacking);
        }
    } else if (thread.state == State::at_team) {
        say("the %s, to whose barrier not all of its threads come", core_.name_of(thread.awaited));
    } else if (thread.state == State::at_named) {
        const auto& named = *static_cast<const Named*>(thread.awaited);
        say("barrier %d, which %u of %u threads have reached", (int)(&named - thread.block->named),
            named.arrived, named.threads);
    } else if (thread.state == State::at_group) {
        kind = Kind::warp_group;
        say("only %u of the 128 threads of the warp group come here", group.arrived);
    } else if (thread.state == State::at_registers) {
        kind = Kind::register_budget;
        say("setmaxnreg.inc waits for %d registers per thread: the other warp groups have %d, and the "
            "thread block has %d for all",
            thread.parameter, others_registers(group), registers_of_block());
    }
    Failure failure = failure_of(core_, kind, thread.site, about, "%s", text);
    failure.error = 702;
    return failure.of(thread);
}

}  // namespace emulator
