// A launch: distributes its thread blocks over the cores, and keeps its errors and settings.
#pragma once

#include <pthread.h>

#include <atomic>
#include <string>

#include "core.h"
#include "failure.h"

namespace emulator {

// Those of the standard library would take longer to compile than what they keep apart.
class Lock {
  public:
    explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Lock() { pthread_mutex_unlock(&mutex_); }

  private:
    pthread_mutex_t& mutex_;
};

struct Settings {
    Schedule schedule;
    double time_limit = 60;  // CPU seconds per core
    int num_cores = 0;       // 0: all that this process may use
    uint64_t most_blocks = 0;  // run only this many thread blocks of a launch; 0: all
};

extern Settings settings;

struct Grid {
    const Launch* launch;
    Schedule schedule;
    uint64_t num_teams;
    uint64_t num_running;  // how many of them run, the first in the order
    std::atomic<uint64_t> next{0};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> instance{0};  // the number of the kernel, see emulator_begin_kernel
};

uint64_t nth_team(const Grid& grid, uint64_t n);  // in the order of the schedule

std::string base_name(const char* kernel);  // "fill" for "a::fill<float, 4>, 1"
void grid_failed(const Failure& failure);
bool grid_stopped();  // since it failed, perhaps on another core
bool given_up();      // for its time limit or Ctrl-C
void set_error(int error);

extern Failure refusal;  // the first launch that was refused in this call; of error 0 if none
int refuse(const Launch& launch, const void* site);  // returns a cudaError_t, 0: it may run
void forget_refusals();
// Sets the error and keeps the words of the first refusal in a call; returns the error.
__attribute__((format(printf, 3, 4))) int note_refusal(int error, const void* site,
                                                       const char* words, ...);
void stop_grid();  // ends a launch
// Refuses a launch of which only the kernel knows that it cannot run; nothing of it has run then.
[[noreturn]] __attribute__((format(printf, 2, 3))) void refuse_running(int error, const char* words,
                                                                       ...);

void forget_errors();
void watch_call(bool begins);  // installs or removes what looks after a call of a launcher
void print_text(const char* text);

}  // namespace emulator
