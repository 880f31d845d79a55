// Which accesses happen before which others, between single threads: vector clocks, as in FastTrack
// (Flanagan and Freund 2009).
//
// The time of a thread advances when it synchronizes. A thread has seen, of each other thread, all
// accesses up to some time:
//  - a barrier shows all threads everything before it, __syncwarp the lanes of a warp;
//  - an arrival at an mbarrier or a named barrier gives what its thread has seen; a thread that waits
//    takes what all arrivals of the phase have given;
//  - a fence keeps what its thread has seen; an atomic or a volatile store after it releases that at
//    its address; a thread that reads the address by an atomic or a volatile load acquires it at its own next
//    fence or barrier.
// Knowledge of fences between proxies travels with what was seen: a thread that has seen a write and,
// after it, such a fence of any thread may start an asynchronous operation on what was written.
// A fence for the thread block alone, __threadfence_block, releases nothing to other thread blocks.
// Teams of a checked launch, most often single thread blocks, run one after another.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <utility>
#include <vector>

#include "../include/emulator/engines.h"
#include "table.h"

namespace emulator {

// Agents do what is asynchronous: one for each mbarrier and each warp group. They are numbered after
// the threads, and their times count their operations.
constexpr uint32_t first_agent = 16384;

// What was seen of the threads of one team: all of them up to time `floor`; threads [first, end), which
// met at a barrier, up to time `level`; single threads and agents up to the times in `above`.
struct Seen {
    uint32_t floor = 0;                      // of threads
    uint32_t first = 0, end = 0, level = 0;  // of threads [first, end)
    std::vector<std::pair<uint32_t, uint32_t>> above;  // thread, time; sorted by thread

    bool covers(uint32_t thread, uint32_t time) const {  // by `floor` or `level`
        return thread < first_agent &&
               (time <= floor || (time <= level && thread - first < end - first));
    }
    bool has(uint32_t thread, uint32_t time) const;
    void add(uint32_t thread, uint32_t time);
    void join(const Seen& other);
    bool is_empty() const { return floor == 0 && level == 0 && above.empty(); }
    void clear() { floor = first = end = level = 0, above.clear(); }
};

// What was seen of the present thread block, and of each earlier one a number in HappensBefore::kept_.
struct Knowledge {
    Seen here;
    Seen fenced[num_proxies];       // the part of `here` before a fence for each proxy
    std::vector<uint32_t> earlier;  // by thread block, in the order in which they ran

    bool is_empty() const { return here.is_empty() && earlier.empty(); }
    void clear() { *this = Knowledge(); }
};

class HappensBefore {
  public:
    void begin_launch();
    void begin_block(uint32_t num_threads, uint32_t pitch);  // `pitch` of each thread block

    // The time of an access. That of an atomic or a volatile access is earlier than that of others
    // between the same two synchronizations: it may itself release, what others have not.
    uint32_t now(uint32_t thread, bool strong) const {
        const uint32_t own = known_[thread * 32 + thread % 32];
        return (own > floor_ ? own : floor_ + 1) + !strong;
    }
    bool seen_by_all(uint32_t other, uint32_t time) const {
        return other < first_agent ? time <= floor_ : all_acquired_.here.has(other, time);
    }
    bool has_seen(uint32_t thread, uint32_t other, uint32_t time) const {
        if (thread == other || seen_by_all(other, time)) return true;
        if (thread / 32 == other / 32 && known_[thread * 32 + other % 32] >= time) return true;
        return used_[thread] && more_[thread].acquired.here.has(other, time);
    }
    // The same of a thread of an earlier thread block of the launch.
    // With `pending` also what its next fence would show it.
    bool has_seen_earlier(uint32_t thread, size_t block, uint32_t other, uint32_t time,
                          bool pending = false) const;

    void barrier();
    void barrier(uint32_t first, uint32_t end);  // of these threads only
    // Whether a thread has seen anything of these threads: so that they have started.
    bool has_met(uint32_t thread, uint32_t first, uint32_t end) const;
    void join(uint32_t warp, uint32_t lanes);
    void fence(uint32_t thread, bool device, bool stored);  // since its last one
    void fence_proxies(uint32_t thread, int proxies);       // one bit per proxy
    // Whether such a fence stands between what another thread did and what the thread does now.
    bool has_fence(uint32_t thread, uint32_t other, uint32_t time, Proxy proxy) const {
        return all_acquired_.fenced[(int)proxy].has(other, time) ||
               (used_[thread] && more_[thread].acquired.fenced[(int)proxy].has(other, time));
    }
    // At a barrier that some threads pass, which keeps what was given.
    void give(uint32_t thread, Knowledge& to);
    void take(uint32_t thread, const Knowledge& from) { join(more(thread).acquired, from); }
    void take(uint32_t thread, uint32_t agent, uint32_t time) {
        more(thread).acquired.here.add(agent, time);
    }
    void join(Knowledge& to, const Knowledge& from);
    Knowledge seen_by(uint32_t thread);
    void advance(uint32_t thread);
    // `until_end`: the memory at the address lives no longer than its thread block.
    void acquire(uint32_t thread, uintptr_t address, bool until_end);
    void release(uint32_t thread, uintptr_t address, bool until_end);

  private:
    // What few threads have: of this block and of earlier ones.
    struct More {
        Knowledge acquired;          // by fences
        Knowledge pending;           // to be acquired at the next one
        Knowledge fenced;            // visible to the whole device, so that it can be released
        Knowledge fenced_here;       // visible to the thread block
        bool all_fenced = false;     // all that was stored before the last fence is in `fenced`
    };
    struct Object {  // an address at which something was released
        size_t block = 0;
        Knowledge released;
        std::vector<Knowledge> released_here;  // to each thread block of the team, by its own threads
    };

    More& more(uint32_t thread);
    void join(More& to, uint32_t thread);  // what it has, and would acquire by a fence
    void join_earlier(std::vector<uint32_t>& to, const std::vector<uint32_t>& from);
    Object& at(uintptr_t address, bool until_end);

    std::vector<uint32_t> known_;  // [thread][lane of its warp]; times up to floor_ mean nothing
    uint32_t floor_ = 0;           // everything up to this time has been seen by all threads
    uint32_t highest_ = 2;         // the latest time of a thread
    uint32_t pitch_ = 1;
    std::vector<uint8_t> used_;    // whether a thread has More
    std::vector<More> more_;
    std::vector<uint32_t> with_more_;
    Knowledge all_acquired_, all_fenced_;  // what barriers have shown to all threads
    size_t block_ = 0;                     // thread blocks of the launch before this one
    std::vector<Seen> kept_;
    Table<Object> objects_;
    bool any_released_ = false;
};

}  // namespace emulator
