// CPU faults and the time limit. The signal handler abandons the thread block by switching back to
// the context that started it; the stacks of its threads are reused.
#include "failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <memory>

#include "calls.h"
#include "grid.h"
#include "memory.h"
#include "observer.h"

namespace emulator {
namespace {

constexpr int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT};
constexpr int num_handled = sizeof(handled) / sizeof(handled[0]);
struct sigaction before[num_handled];
int depth = 0;  // of launches and calls that have asked for the handlers
volatile sig_atomic_t interrupted = 0;
Code own;  // this library's

constexpr double period = 0.01;   // seconds of CPU time between two looks at what runs
constexpr double grace = 0.015;   // in which what the kernel calls next may stop it, which knows its line
constexpr double patience = 1;    // until code is abandoned that is not the learner's
// What a thread may have for itself; when checked, where a run should be like the last, only a thread
// that waits in a loop is to be preempted. Where one was, there are others.
constexpr double slice = 0.015, checked_slice = 0.25;

int alarm_signal() { return SIGRTMIN + 6; }

double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Whether the access that faulted was a store, as far as the processor tells.
bool is_store(void* context) {
#if defined(__x86_64__)
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    return (void)context, false;
#endif
}

// What this OS thread does, in its own CPU seconds; 0: not seen yet.
thread_local double since = 0, asked_at = 0, switched_at = 0;
thread_local uint64_t switches_seen = 0;
thread_local bool preempting = false;

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

struct Search {
    const Code& code;
    const void* found;
};

_Unwind_Reason_Code visit(_Unwind_Context* frame, void* data) {
    auto* search = static_cast<Search*>(data);
    const auto* here = reinterpret_cast<const void*>(_Unwind_GetIP(frame));
    if (!search->code.holds(here)) return _URC_NO_REASON;
    search->found = here;
    return _URC_END_OF_STACK;
}

// The instruction or, in the code of a library, where the learner's code has called it.
const void* site_in(const Code& code, void* context) {
    Search search = {code, program_counter(context)};
    if (!code.holds(search.found)) _Unwind_Backtrace(visit, &search);
    return search.found;
}

Failure failure_in(Kind kind, int error, void* context) {
    const Core* core = this_core;
    const void* landing = core ? core->async.landing : nullptr;
    Failure failure =
        failure_at(kind, error, landing ? landing : site_in(core ? core->code : launcher_code(), context));
    return core ? failure.of(*core->current) : failure;
}

// Ends a launcher that has crashed on the host.
[[noreturn]] void launcher_crashed(int signal, siginfo_t* info, void* context) {
    Failure failure = failure_in(Kind::launcher_fault, 719, context);
    failure.address = (uint64_t)info->si_addr;
    const char* what = signal == SIGFPE    ? "integer division by zero"
                       : signal == SIGABRT ? "abort() was called"
                       : signal == SIGILL  ? "illegal instruction"
                                           : "segmentation fault";
#if defined(__x86_64__)
    const auto stack = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP];
    const auto distance = (uint64_t)stack - failure.address;
    if (signal == SIGSEGV && distance + (64 << 10) < 128 << 10) what = "stack overflow";
#endif
    abandon_call(failure.says(what));
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Core* core = this_core;
    if (!core && in_launcher()) launcher_crashed(signal, info, context);
    if (!core || !core->running() || core->busy) {  // not a fault of the kernel
        for (int i = 0; i < num_handled; ++i) {
            if (handled[i] == signal) sigaction(signal, &before[i], nullptr);
        }
        return;
    }
    Failure failure;
    if (signal == SIGFPE) {
        failure = failure_in(Kind::division, 719, context);
    } else if (signal == SIGABRT) {
        failure = failure_in(Kind::trap, 719, context).says("abort()");
    } else if (core->stacks.in_guard(info->si_addr)) {
        failure = failure_in(Kind::stack_overflow, 719, context);
    } else if (core->past_shared(info->si_addr)) {
        failure = failure_in(Kind::out_of_bounds, 700, context);
        failure.memory = Memory::shared;
        failure.range = -2;
        failure.extent = core->launch->shared_bytes;
        failure.offset = (char*)info->si_addr - (char*)core->here->dynamic_shared;
        failure.access = is_store(context) ? Access::store : Access::load;
    } else {
        const Allocation* meant = allocation_near(info->si_addr);
        failure = failure_in(meant ? Kind::out_of_bounds : Kind::segmentation_fault, 700, context);
        failure.access = is_store(context) ? Access::store : Access::load;
        if (meant) failure.range = -4, failure.memory = Memory::global;
        if (meant) failure.offset = (char*)info->si_addr - (char*)meant->begin;
    }
    failure.address = (uint64_t)info->si_addr;
    fail(*core, failure);
}

// Looks after a kernel. Where the thread block cannot be abandoned and no source line can be named,
// the next barrier, shuffle or checked access does what is to be done.
void look_after(Core& core, void* context) {
    if (!core.running()) return;
    const auto* here = static_cast<const char*>(program_counter(context));
    const double now = cpu_seconds();
    Kind why;
    if (must_stop(why)) {
        if (asked_at == 0) asked_at = now;
        core.attention = 1;
        const bool ours = own.holds(here) || (observer && observer->code.holds(here));
        if (core.busy || ours || now - asked_at < grace) return;
        if (!core.code.holds(here) && now - asked_at < patience) return;
        fail(core, failure_in(why, 702, context));
    }
    if (core.switches != switches_seen) {
        switches_seen = core.switches;
        switched_at = now;
    } else if (!core.busy && !core.async.landing &&
               now - switched_at > (core.checking && !preempting ? checked_slice : slice)) {
        preempting = true;
        if (core.checking) {
            core.attention = 1;
        } else if (core.code.holds(here)) {
            preempt_at(context);
        }
    }
}

void on_tick(int, siginfo_t*, void* context) {
    if (since == 0) since = cpu_seconds() - period;
    if (Core* core = this_core) {
        look_after(*core, context);
        return;
    }
    Kind why;
    if (!in_launcher() || !must_stop(why)) return;
    if (asked_at == 0) asked_at = cpu_seconds();
    if (launcher_code().holds(program_counter(context)) || cpu_seconds() - asked_at > patience) {
        abandon_call(failure_in(why, 702, context));
    }
}

// Ctrl-C: this thread stops now, others when they look. The system may give the signal to any thread
// of the process, so the main one gets it in any case. Python is told of it too, unless the call is
// its main thread's, which raises KeyboardInterrupt by itself.
void on_interrupt(int signal, siginfo_t* info, void* context) {
    interrupted = 1;
    on_tick(signal, info, context);
    if (main_in_call()) {
        if (getpid() != syscall(SYS_gettid)) syscall(SYS_tgkill, getpid(), getpid(), signal);
        return;
    }
    const auto& python = before[num_handled - 1];
    if (!(python.sa_flags & SA_SIGINFO)) python.sa_handler(signal);
}

// A timer that signals this thread, by its CPU time, so that a busy machine does not shorten the
// limit. Created once per thread, and again after a fork.
struct Timer {
    timer_t timer;
    pid_t process = 0;

    void make() {
        if (process == getpid()) return;
        process = getpid();
        struct sigaction action = {};
        action.sa_sigaction = on_tick;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        sigaction(alarm_signal(), &action, nullptr);
        struct sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = alarm_signal();
        event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
        timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
    }
    void set(bool on) {
        struct itimerspec when = {};
        when.it_value.tv_nsec = when.it_interval.tv_nsec = on ? (long)(period * 1e9) : 0;
        timer_settime(timer, 0, &when, nullptr);
    }
};

struct PerThread {
    Timer timer;
    stack_t before_stack;
    int watches = 0;
    std::unique_ptr<char[]> signal_stack{new char[64 * 1024]};
};

thread_local std::unique_ptr<PerThread> per_thread;

}  // namespace

void fail(Core& core, Failure failure) {
    failure.block = core.here->index;
    failure.in_kernel = 1;
    if (failure.count == 0) failure.count = 1;
    core.busy = 1;
    grid_failed(failure);
    core.busy = 0;
    core.leave();
}

bool must_stop(Kind& why) {
    why = interrupted ? Kind::interrupted : Kind::time_limit;
    return interrupted || grid_stopped() ||
           (since > 0 && cpu_seconds() - since > settings.time_limit);
}

Watch::Watch() {
    if (!per_thread) per_thread.reset(new PerThread);
    begin_phase();
    if (per_thread->watches++) return;
    stack_t stack = {};
    stack.ss_sp = per_thread->signal_stack.get();
    stack.ss_size = 64 * 1024;
    sigaltstack(&stack, &per_thread->before_stack);
    per_thread->timer.make();
    per_thread->timer.set(true);
}

Watch::~Watch() {
    begin_phase();
    if (--per_thread->watches) return;
    per_thread->timer.set(false);
    sigaltstack(&per_thread->before_stack, nullptr);
}

void watch_call(bool begins) {
    static std::unique_ptr<Handlers> handlers;
    static std::unique_ptr<Watch> watch;
    if (begins) {
        handlers.reset(new Handlers);
        watch.reset(new Watch);
    } else {
        watch.reset();
        handlers.reset();
    }
}

void begin_phase() {
    since = asked_at = switched_at = 0;
    switches_seen = 0;
    preempting = false;
}

Handlers::Handlers() {
    if (depth++) return;
    if (!own.begin) own = code_around(reinterpret_cast<void*>(on_fault));
    interrupted = 0;
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < num_handled; ++i) {
        action.sa_sigaction = handled[i] == SIGINT ? on_interrupt : on_fault;
        sigaction(handled[i], &action, &before[i]);
    }
    // A process that ignores Ctrl-C, or ends by it, still does.
    const auto& python = before[num_handled - 1];
    if (python.sa_handler == SIG_IGN || python.sa_handler == SIG_DFL) {
        sigaction(SIGINT, &python, nullptr);
    }
}

Handlers::~Handlers() {
    if (--depth) return;
    for (int i = 0; i < num_handled; ++i) sigaction(handled[i], &before[i], nullptr);
}

}  // namespace emulator
