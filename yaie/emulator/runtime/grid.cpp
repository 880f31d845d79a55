#include "grid.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memory>
#include <numeric>

#include "calls.h"
#include "observer.h"
#include "tiles.h"

namespace emulator {

Settings settings;
Observer* observer = nullptr;

uint64_t nth_team(const Grid& grid, uint64_t n) {
    switch (grid.schedule.order) {
        case Order::forward: return n;
        case Order::reverse: return grid.num_teams - 1 - n;
        case Order::random: break;
    }
    // A stride that shares no factor with the number of teams visits each of them once.
    uint64_t stride = (grid.schedule.seed * 2654435761u + 1) % grid.num_teams + 1;
    while (std::gcd(stride, grid.num_teams) != 1) ++stride;
    return (n * stride + grid.schedule.seed) % grid.num_teams;
}

namespace {

constexpr uint64_t worth_waking = 4096;  // threads in a grid; fewer finish before a core wakes

pthread_mutex_t launch_mutex = PTHREAD_MUTEX_INITIALIZER;  // one launch at a time
int last_error = 0;
std::vector<uint64_t> launches;  // instances that the call has launched
uint64_t grid_shape[2];  // of the last launch: its thread blocks, and the threads of each

pthread_mutex_t failure_mutex = PTHREAD_MUTEX_INITIALIZER;
bool has_failed = false;
Failure first_failure;

pthread_mutex_t text_mutex = PTHREAD_MUTEX_INITIALIZER;
std::string text;  // what kernels printed

Grid* present = nullptr;
uint3 wanted_cluster;  // by the kernel that runs

// What each core does in a launch: takes teams of thread blocks until none are left.
void work(Grid& grid) {
    static thread_local std::unique_ptr<Core> core(new Core);
    Watch watch;
    core->code = code_around(reinterpret_cast<void*>(grid.launch->body));
    this_core = core.get();
    core->checking = grid.launch->checked && observer;
    core->attention = 0;
    for (;;) {
        const uint64_t n = grid.next.fetch_add(1, std::memory_order_relaxed);
        if (n >= grid.num_running || grid.stop.load(std::memory_order_relaxed)) break;
        core->run(*grid.launch, grid.schedule, nth_team(grid, n));
    }
    this_core = nullptr;
}

// OS threads that sleep between launches, one for each further core.
class Pool {
  public:
    void run(Grid& grid, int helpers) {
        {
            Lock lock(mutex_);
            for (pthread_t started; num_threads_ < helpers; ++num_threads_) {
                pthread_create(&started, nullptr, serve, this);
                pthread_detach(started);
            }
            grid_ = &grid;
            wanted_ = running_ = helpers;
            ++launch_;
            pthread_cond_broadcast(&wake_);
        }
        work(grid);
        Lock lock(mutex_);
        while (running_) pthread_cond_wait(&done_, &mutex_);
    }

  private:
    static void* serve(void* pool) { static_cast<Pool*>(pool)->serve(); return nullptr; }
    void serve() {
        pthread_mutex_lock(&mutex_);
        const int me = serving_++;
        for (uint64_t seen = 0;;) {
            while (launch_ == seen || me >= wanted_) pthread_cond_wait(&wake_, &mutex_);
            seen = launch_;
            Grid* grid = grid_;
            pthread_mutex_unlock(&mutex_);
            work(*grid);
            pthread_mutex_lock(&mutex_);
            if (--running_ == 0) pthread_cond_signal(&done_);
        }
    }

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake_ = PTHREAD_COND_INITIALIZER, done_ = PTHREAD_COND_INITIALIZER;
    Grid* grid_ = nullptr;
    int num_threads_ = 0, serving_ = 0, wanted_ = 0, running_ = 0;
    uint64_t launch_ = 0;
};

// Never destroyed: its threads live as long as the process. After a fork the child process has none
// of them, so it starts with a new pool.
Pool* pool() {
    static Pool* only = nullptr;
    static bool registered = false;
    if (!registered) {
        registered = true;
        pthread_atfork(nullptr, nullptr, [] { only = nullptr; });
    }
    if (!only) only = new Pool;
    return only;
}

int num_cores() {
    if (settings.num_cores > 0) return settings.num_cores;
    static const int available = [] {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
        return CPU_COUNT(&set);
    }();
    return available;
}

// How many clusters a team has in order "random", if the kernel's shared arrays can be kept apart.
uint32_t clusters_together(const Launch& launch) {
    if (settings.schedule.order != Order::random || launch.cooperative || settings.most_blocks ||
        !observer->arrays_have_owners()) {
        return 1;
    }
    const uint64_t clusters = volume(launch.grid) / volume(launch.cluster);
    uint32_t most = (uint32_t)(2048 / pitch_of(launch, (uint32_t)volume(launch.thread_block), false) /
                               volume(launch.cluster));
    for (most = most < 4 ? most : 4; most > 1 && clusters % most; --most) {}
    return most;
}

void run_grid(const Launch& given) {
    Launch launch = given;
    if (launch.checked && observer) launch.together = clusters_together(launch);
    const uint64_t team = team_size(launch), all = volume(launch.grid) / team;
    const uint64_t most = (settings.most_blocks + team - 1) / team;
    Grid grid{&launch, settings.schedule, all, most && most < all ? most : all};
    const bool checking = launch.checked && observer;
    const uint64_t threads = grid.num_running * volume(launch.thread_block);
    // The checker needs a single order of events; where the shared arrays of several thread blocks
    // are is known of the OS thread that launches.
    const bool one = checking || team > 1 || threads < worth_waking;
    uint64_t cores = one ? 1 : (uint64_t)num_cores();
    if (cores > grid.num_running) cores = grid.num_running;
    Handlers handlers;
    present = &grid;
    launching(true);
    if (checking) observer->begin_launch();
    if (cores > 1) {
        pool()->run(grid, (int)cores - 1);
    } else {
        work(grid);
    }
    launching(false);
    present = nullptr;
    launches.push_back(grid.instance);
}

int run_launch(const Launch& launch, const void* site) {
    Lock lock(launch_mutex);
    if (has_failed) return last_error;  // after a fault nothing runs until Python has read it
    if (int error = refuse(launch, site)) return error;
    if (!last_error) refusal = {};  // the launcher has asked for that error, and goes on without it
    wanted_cluster = launch.cluster;
    grid_shape[0] = volume(launch.grid);
    grid_shape[1] = volume(launch.thread_block);
    run_grid(launch);
    const uint3 given = launch.cluster, wanted = wanted_cluster;
    if (wanted.x == given.x && wanted.y == given.y && wanted.z == given.z) return last_error;
    Launch again = launch;
    again.cluster = wanted;
    if (int error = refuse(again, site)) return error;
    run_grid(again);
    return last_error;
}

}  // namespace

std::string base_name(const char* kernel) {
    std::string name(kernel);
    if (name[0] == '(') name = name.substr(name.find(')') + 1);  // a cast
    name = name.substr(0, name.find_first_of("<,"));
    const size_t begin = name.find_last_of(":& ");
    return begin == std::string::npos ? name : name.substr(begin + 1);
}

void grid_failed(const Failure& failure) {
    Lock lock(failure_mutex);
    if (present) present->stop = true;
    if (has_failed) return;
    has_failed = true;
    first_failure = failure;
    last_error = failure.error;
}

void stop_grid() {
    if (present) present->stop = true;
}

bool grid_stopped() { return present && present->stop; }

bool given_up() {
    Lock lock(failure_mutex);
    const Kind kind = first_failure.kind;
    return has_failed && (kind == Kind::time_limit || kind == Kind::interrupted);
}

void set_error(int error) {
    Lock lock(failure_mutex);
    if (!last_error) last_error = error;
}

void forget_errors() {
    has_failed = false;
    last_error = 0;
    launches.clear();
    grid_shape[0] = grid_shape[1] = 0;
    forget_refusals();
}

void print_text(const char* line) {
    Lock lock(text_mutex);
    text += line;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

uint3 emulator_thread_index() { return emulator_place.thread; }
uint3 emulator_block_index() { return emulator_place.block; }
uint3 emulator_block_dim() { return emulator_place.block_dim; }
uint3 emulator_grid_dim() { return emulator_place.grid_dim; }
void* emulator_dynamic_shared() { return this_core->here->dynamic_shared; }
ptrdiff_t emulator_shared_shift() { return this_core->here->shift; }
uint3 emulator_cluster_dim() { return this_core->launch->cluster; }
void* emulator_map_shared(const void* address, uint32_t rank) {
    return this_core->mapped(address, rank, __builtin_return_address(0));
}
uint32_t emulator_shared_rank(const void* address) {
    Core& core = *this_core;
    const Block* owner = core.owner(address);
    return core.rank_of(owner ? *owner : *core.here);
}
void emulator_cluster_arrive(int releases) {
    this_core->gather(false, releases, __builtin_return_address(0));
}
void emulator_cluster_wait(int acquires) {
    this_core->gather_wait(false, acquires, __builtin_return_address(0));
}
// What a kernel with __cluster_dims__ calls first: the launch begins anew as one of such clusters.
void emulator_cluster_dims(unsigned x, unsigned y, unsigned z) {
    const uint3 given = this_core->launch->cluster;
    if (given.x == x && given.y == y && given.z == z) return;
    if (this_core->launch->has_cluster) {
        refuse_running(912, "clusters of (%u, %u, %u), its __cluster_dims__ are (%u, %u, %u)", given.x,
                       given.y, given.z, x, y, z);
    }
    this_core->busy = 1;
    {
        Lock lock(failure_mutex);
        wanted_cluster = {x, y, z};
    }
    stop_grid();
    this_core->busy = 0;
    this_core->leave();
}
uint32_t emulator_active_lanes() {
    return this_core->active_lanes(__builtin_return_address(0));
}

int emulator_launch(const Launch* launch) {
    if (this_core) {
        fail_here(failure_at(Kind::refused, 1, __builtin_return_address(0))
                      .says("a kernel launches a kernel, which only the host does"));
    }
    Kind why;
    if (in_launcher() && must_stop(why)) {
        abandon_call(failure_at(why, 702, __builtin_return_address(0)));
    }
    const int error = run_launch(*launch, __builtin_return_address(0));
    if (has_failed && first_failure.kind == Kind::left_out && in_launcher()) {
        abandon_call(first_failure);  // the launcher would tell of an error that is not its own
    }
    return error;
}

// What each thread of a kernel calls first.
void emulator_begin_kernel(uint64_t instance, int compiled) {
    std::atomic<uint64_t>& known = present->instance;
    if (known.load(std::memory_order_relaxed) != instance) {
        known.store(instance, std::memory_order_relaxed);
    }
    if (!compiled) fail_here(failure_at(Kind::left_out, 98, __builtin_return_address(0)));
}

int emulator_sync_threads(Vote vote, int predicate) {
    return this_core->sync_threads(vote, predicate, __builtin_return_address(0));
}

void emulator_sync_team(int of_grid) {
    this_core->gather_sync(of_grid, __builtin_return_address(0));
}
int emulator_is_cooperative() { return this_core->launch->cooperative; }

uint64_t emulator_collective(Collective operation, uint32_t mask, uint64_t value, int parameter,
                             int width) {
    return this_core->collective(operation, mask, value, parameter, width,
                                 __builtin_return_address(0));
}

void emulator_gather(uint64_t value, int matrices, int transposed) {
    this_core->collective(Collective::gather, ~0u, value, matrices, transposed,
                          __builtin_return_address(0));
}
uint64_t emulator_gathered(int lane) { return this_core->gathered(lane); }

emulator_Registers emulator_multiply(TileProduct product, uint64_t a_low, uint64_t a_high,
                                     uint64_t b, uint64_t c_low, uint64_t c_high) {
    LaneTile tile{product, {(uint32_t)a_low, uint32_t(a_low >> 32), (uint32_t)a_high, uint32_t(a_high >> 32)},
                  {(uint32_t)b, uint32_t(b >> 32)},
                  {(uint32_t)c_low, uint32_t(c_low >> 32), (uint32_t)c_high, uint32_t(c_high >> 32)}, {}};
    this_core->collective(Collective::multiply, ~0u, (uint64_t)&tile, 0, 32,
                          __builtin_return_address(0));
    return {tile.d[0] | (uint64_t)tile.d[1] << 32, tile.d[2] | (uint64_t)tile.d[3] << 32};
}

void emulator_fence(int device) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (this_core && this_core->checking) observer->fence(*this_core, device != 0);
}

void emulator_poll(const void* address, const void* site) {
    if (this_core) this_core->poll(address, site ? site : __builtin_return_address(0));
}

// Kernels print into a buffer that Python prints after the launch, so that it shows in notebooks.
int emulator_print(const char* format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    Core* core = this_core;
    const int length = vsnprintf(line, sizeof(line), format, arguments);  // may fault
    va_end(arguments);
    if (core) core->busy = 1;
    print_text(line);
    if (core) core->busy = 0;
    if (core && core->attention) core->attend(__builtin_return_address(0));
    return length;
}

void emulator_assert_failed(const char* expression, const char*, int) {
    fail_here(failure_at(Kind::assertion, 710, __builtin_return_address(0)).says(expression));
}

void emulator_trap() {
    fail_here(failure_at(Kind::trap, 719, __builtin_return_address(0)));
}

int emulator_get_last_error() {
    Lock lock(failure_mutex);
    const int error = last_error;
    last_error = 0;
    return error;
}
int emulator_peek_last_error() { return last_error; }
int emulator_num_cores() { return num_cores(); }
long long emulator_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

// ------------------------------------------------------------------ for Python (runtime.py)

void emulator_configure(int order, uint64_t seed, double time_limit, int cores,
                        uint64_t most_blocks) {
    settings = {{(Order)order, seed}, time_limit, cores, most_blocks};
}

int emulator_failure(Failure* failure) {
    if (has_failed) *failure = first_failure;
    return has_failed;
}

// Writes the numbers of the last call's launches to `to`; returns how many there are.
size_t emulator_launches(uint64_t* to, size_t size) {
    for (size_t i = 0; i < launches.size() && i < size; ++i) to[i] = launches[i];
    return launches.size();
}

// Writes how many thread blocks the last launch had, and how many threads each of them.
void emulator_grid_shape(uint64_t* to) { memcpy(to, grid_shape, sizeof(grid_shape)); }

// Moves what kernels printed into `to`; returns its length.
size_t emulator_take_text(char* to, size_t size) {
    Lock lock(text_mutex);
    const size_t length = text.size();
    if (length <= size) {
        memcpy(to, text.data(), length);
        text.clear();
    }
    return length;
}
}
