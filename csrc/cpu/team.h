// The threads of one step: they take pieces of work in turn and meet at barriers.
//
// Computes  nothing by itself
// Shapes    one team per call, of as many threads as torch was told to use
// Owns      a counter of the pieces that are taken, and a counter of the threads that arrived
// Moves     two cache lines between the cores, per piece and per barrier
// Oracle    every result is the same with 1, 2 and 3 threads, in tests/test_cpp.py
// Idea      a step is one parallel region, not one per operator: threads are woken once per token.
//           A thread that waits tries for some microseconds and then offers its core to other
//           processes at every try, so that two engines on the same cores both go on.
#pragma once
#include <omp.h>

#include <atomic>
#include <thread>

class Team {
public:
    // Each thread of the team calls this with the same `count`; every number below it goes to one
    // of them. All work is done, and seen by all threads, when it returns. A thread takes runs of
    // numbers, whose memory lies together: shorter ones towards the end.
    template <class Function>
    void each(int64_t count, Function work) {
        const int64_t share = 2 * omp_get_num_threads();
        for (int64_t i = next; i < count; i = next) {
            int64_t end = i + (count - i + share - 1) / share;
            if (next.compare_exchange_weak(i, end, std::memory_order_relaxed))
                for (; i < end; ++i) work(i);
        }
        meet();
    }

private:
    void meet() {
        int round = rounds.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) == omp_get_num_threads() - 1) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            rounds.store(round + 1, std::memory_order_release);
            return;
        }
        for (int tries = 0; rounds.load(std::memory_order_acquire) == round; ++tries)
            if (tries > PATIENCE) std::this_thread::yield();
    }

    static constexpr int PATIENCE = 20000;  // about 20 microseconds
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> rounds{0};
};
