// What a launch may ask for: the limits of a GPU, and in which words one that exceeds them is
// refused.
#include <stdarg.h>
#include <stdio.h>

#include <string>
#include <vector>

#include "grid.h"

namespace emulator {

Failure refusal;

namespace {

// The dynamic shared memory that cudaFuncSetAttribute has allowed a kernel.
struct Allowance {
    const char* file;
    std::string kernel;
    size_t bytes;
};

struct Static {  // the static shared memory of a kernel
    std::string kernel;
    size_t bytes;
};

constexpr size_t without_asking = 48 * 1024;
constexpr uint64_t most_together = 8192;  // threads: each takes two entries of the kernel's map of memory
std::vector<Static> statics;  // of the file whose launcher is called
const void* launched_at;      // the site of the latest launch

size_t static_bytes(const std::string& kernel) {
    for (const Static& one : statics) {
        if (one.kernel == kernel) return one.bytes;
    }
    return 0;
}

Allowance& allowance(const char* file, const char* name) {
    static std::vector<Allowance> known;
    const std::string kernel = base_name(name);
    for (Allowance& one : known) {
        if (one.file == file && one.kernel == kernel) return one;
    }
    known.push_back({file, kernel, without_asking});
    return known.back();
}

void words_of(const Launch& launch, char* words, size_t size) {
    const uint3 g = launch.grid, b = launch.thread_block;
    snprintf(words, size, "%.40s<<<(%u, %u, %u), (%u, %u, %u), %zu>>> is refused",
             base_name(launch.name).c_str(), g.x, g.y, g.z, b.x, b.y, b.z, launch.shared_bytes);
}

}  // namespace

int note_refusal(int error, const void* site, const char* words, ...) {
    set_error(error);
    if (refusal.error) return error;
    refusal.kind = Kind::refused;
    refusal.error = error;
    refusal.site = site;
    va_list values;
    va_start(values, words);
    vsnprintf(refusal.text, sizeof(refusal.text), words, values);
    va_end(values);
    return error;
}

void forget_refusals() {
    refusal = {};
    statics.clear();
}

int refuse(const Launch& launch, const void* site) {
    const uint3 g = launch.grid, b = launch.thread_block, c = launch.cluster;
    char launched[128];
    words_of(launch, launched, sizeof(launched));
    launched_at = site;
    auto refused = [&](int error, const char* words, auto... values) {
        char why[200];
        snprintf(why, sizeof(why), words, values...);
        return note_refusal(error, site, "%s: %s", launched, why);
    };
    const uint64_t threads = volume(b), blocks = team_size(launch), cluster = volume(c);
    if (threads == 0) return refused(9, "a thread block needs threads");
    if (threads > 1024 || b.x > 1024 || b.y > 1024) {
        return refused(9, "%llu threads per thread block, at most 1024 are allowed",
                       (unsigned long long)threads);
    }
    if (b.z > 64) return refused(9, "blockDim.z is %u, at most 64", b.z);
    if (volume(g) == 0) return refused(9, "a grid needs thread blocks");
    if (g.x > 0x7fffffffu) return refused(9, "gridDim.x is %u, at most 2147483647", g.x);
    if (g.y > 65535) return refused(9, "gridDim.y is %u, at most 65535", g.y);
    if (g.z > 65535) return refused(9, "gridDim.z is %u, at most 65535", g.z);
    const uint64_t all = blocks * pitch_of(launch, (uint32_t)threads, blocks == 1);
    if (all > most_together) {
        return refused(720, "the threads of a %s run together, here at most %llu, not %llu (a thread "
                       "block of several counts in whole warps, or warp groups)",
                       launch.cooperative ? "cooperative launch" : "cluster",
                       (unsigned long long)most_together, (unsigned long long)all);
    }
    if (cluster < 1 || cluster > 8 || g.x % c.x || g.y % c.y || g.z % c.z) {
        return refused(912, "clusters of (%u, %u, %u): at most 8 thread blocks, of which the grid is a "
                       "multiple in each dimension", c.x, c.y, c.z);
    }
    const size_t fixed = static_bytes(base_name(launch.name));
    if (launch.shared_bytes + fixed <= without_asking) return 0;
    const size_t allowed = allowance(launch.file, launch.name).bytes;
    if (allowed == without_asking && launch.shared_bytes <= allowed) {
        return refused(1, "%zu bytes of dynamic shared memory and %zu of static are more than %zu; "
                       "cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize allows "
                       "more", launch.shared_bytes, fixed, allowed);
    }
    if (launch.shared_bytes <= allowed) return 0;
    return refused(1, "%zu bytes of dynamic shared memory, %zu are allowed; cudaFuncSetAttribute with "
                   "cudaFuncAttributeMaxDynamicSharedMemorySize allows more",
                   launch.shared_bytes, allowed);
}

void refuse_running(int error, const char* words, ...) {
    this_core->busy = 1;
    {
        static pthread_mutex_t one_core = PTHREAD_MUTEX_INITIALIZER;
        Lock lock(one_core);
        char launched[128], why[128];
        words_of(*this_core->launch, launched, sizeof(launched));
        va_list values;
        va_start(values, words);
        vsnprintf(why, sizeof(why), words, values);
        va_end(values);
        note_refusal(error, launched_at, "%s: %s", launched, why);
        stop_grid();
    }
    this_core->busy = 0;
    this_core->leave();
}

}  // namespace emulator

using namespace emulator;

extern "C" {

int emulator_allow_shared(const char* file, const char* kernel, size_t bytes) {
    const size_t fixed = static_bytes(base_name(kernel));
    if (bytes + fixed > most_shared) {
        return note_refusal(1, __builtin_return_address(0),
                            "cudaFuncSetAttribute asks for %zu bytes of dynamic shared memory for "
                            "%.40s, at most %zu are allowed",
                            bytes, base_name(kernel).c_str(), most_shared - fixed);
    }
    allowance(file, kernel).bytes = bytes;
    return 0;
}

// What a kernel with __launch_bounds__ calls first.
void emulator_launch_bounds(unsigned most) {
    const unsigned threads = (unsigned)volume(this_core->launch->thread_block);
    if (threads <= most) return;
    refuse_running(1, "%u threads per thread block, its __launch_bounds__ allow %u", threads, most);
}

// For Python, after emulator_begin: how much static shared memory a kernel has.
void emulator_static_shared(const char* kernel, size_t bytes) { statics.push_back({kernel, bytes}); }

// For Python: whether a launch was refused since emulator_begin, and the first that was.
int emulator_refusal(Failure* found) {
    *found = refusal;
    return refusal.error;
}
}
