// CPU faults and the time limit. The signal handler abandons the thread block by switching back to
// the context that started it; the stacks of its threads are reused.
#include "failure.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <memory>

#include "grid.h"
#include "observer.h"

// Where this library's code begins and ends; the linker defines these symbols.
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char etext[] __attribute__((visibility("hidden")));

namespace emulator {
namespace {

constexpr int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int num_faults = sizeof(faults) / sizeof(faults[0]);
struct sigaction before[num_faults];

int alarm_signal() { return SIGRTMIN + 6; }

const void* program_counter(void* context) {
    auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(machine->gregs[REG_RIP] + 1);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(machine->pc + 1);
#else
    return (void)machine, nullptr;
#endif
}

Failure failure_at(Kind kind, int error, void* context) {
    Failure failure = {};
    failure.kind = kind;
    failure.error = error;
    failure.site = program_counter(context);
    failure.thread = this_core->current->index;
    failure.range = -1;
    return failure;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Core* core = this_core;
    if (!core || !core->running() || core->busy) {  // not a fault of the kernel
        struct sigaction standard = {};
        standard.sa_handler = SIG_DFL;
        sigaction(signal, &standard, nullptr);
        return;
    }
    Failure failure;
    if (signal == SIGFPE) {
        failure = failure_at(Kind::division, 719, context);
    } else if (core->stacks.in_guard(info->si_addr)) {
        failure = failure_at(Kind::stack_overflow, 719, context);
    } else {
        failure = failure_at(Kind::segmentation_fault, 700, context);
    }
    failure.address = (uint64_t)info->si_addr;
    fail(*core, failure);
}

// The time limit has passed. Inside the runtime the thread block cannot be abandoned and no source
// line can be named; there the next barrier, shuffle or checked access ends the launch.
void on_alarm(int, siginfo_t*, void* context) {
    Core* core = this_core;
    if (!core || !core->running()) return;
    const auto* here = static_cast<const char*>(program_counter(context));
    const bool ours = here >= __ehdr_start && here < etext;
    if (core->busy || ours || (observer && observer->holds_code(here))) {
        core->stop_asked = 1;
        return;
    }
    fail(*core, failure_at(Kind::time_limit, 702, context));
}

// A timer that signals this thread and measures its CPU time, so that a busy machine does not
// shorten the limit. Created once per thread, and again after a fork.
struct Timer {
    timer_t timer;
    pid_t process = 0;

    void make() {
        if (process == getpid()) return;
        process = getpid();
        struct sigaction action = {};
        action.sa_sigaction = on_alarm;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        sigaction(alarm_signal(), &action, nullptr);
        struct sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = alarm_signal();
        event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
        timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
    }
    void set(double seconds) {
        struct itimerspec when = {};
        when.it_value.tv_sec = (time_t)seconds;
        when.it_value.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9);
        if (seconds > 0) when.it_interval.tv_nsec = 20'000'000;  // repeat if it was busy
        timer_settime(timer, 0, &when, nullptr);
    }
};

struct PerThread {
    Timer timer;
    stack_t before_stack;
    std::unique_ptr<char[]> signal_stack{new char[64 * 1024]};
};

thread_local std::unique_ptr<PerThread> per_thread;

}  // namespace

void fail(Core& core, Failure failure) {
    failure.block = core.block;
    if (failure.count == 0) failure.count = 1;
    core.busy = 1;
    grid_failed(failure);
    core.busy = 0;
    core.leave();
}

Watch::Watch(double seconds) {
    if (!per_thread) per_thread.reset(new PerThread);
    stack_t stack = {};
    stack.ss_sp = per_thread->signal_stack.get();
    stack.ss_size = 64 * 1024;
    sigaltstack(&stack, &per_thread->before_stack);
    per_thread->timer.make();
    per_thread->timer.set(seconds);
}

Watch::~Watch() {
    per_thread->timer.set(0);
    sigaltstack(&per_thread->before_stack, nullptr);
}

Handlers::Handlers() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < num_faults; ++i) sigaction(faults[i], &action, &before[i]);
}

Handlers::~Handlers() {
    for (int i = 0; i < num_faults; ++i) sigaction(faults[i], &before[i], nullptr);
}

}  // namespace emulator
