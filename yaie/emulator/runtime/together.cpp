// A cooperative launch: on one OS thread the thread blocks of the grid take turns.
#include <link.h>
#include <string.h>

#include <memory>
#include <vector>

#include "calls.h"
#include "grid.h"
#include "observer.h"

namespace emulator {
namespace {

// The `__shared__` arrays of a file: of this OS thread, for one thread block at a time.
struct Arrays {
    const void* code;
    void* begin = nullptr;
    size_t size = 0;

    explicit Arrays(const void* code) : code(code) { dl_iterate_phdr(visit, this); }
    static int visit(dl_phdr_info* info, size_t, void* data) {
        auto* arrays = static_cast<Arrays*>(data);
        bool holds = false;
        size_t size = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& header = info->dlpi_phdr[i];
            const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
            if (header.p_type == PT_TLS) size = header.p_memsz;
            holds |= header.p_type == PT_LOAD && (uintptr_t)arrays->code - begin < header.p_memsz;
        }
        if (holds) arrays->begin = info->dlpi_tls_data, arrays->size = size;
        return holds;
    }
};

}  // namespace

// Each runs until all its threads have ended or wait for the grid.
void work_together(Grid& grid) {
    struct Member {
        Core core;
        std::vector<char> arrays;
    };
    static std::vector<std::unique_ptr<Member>> members;
    while (members.size() < grid.num_blocks) members.emplace_back(new Member);
    Watch watch;
    const Code code = code_around(reinterpret_cast<void*>(grid.launch->body));
    const Arrays arrays(code.begin);
    for (bool first = true, all = false; !all && !grid.stop; first = false) {
        if (!first && members[0]->core.checking) observer->begin_launch();
        uint64_t waiting = 0;
        for (uint64_t n = 0; n < grid.num_blocks && !grid.stop; ++n) {
            Member& one = *members[n];
            this_core = &one.core;
            one.core.checking = grid.launch->checked && observer;
            one.core.code = code;
            one.core.attention = 0;
            if (first) {
                one.core.run(*grid.launch, grid.schedule, nth_block(grid, n));
            } else {
                memcpy(arrays.begin, one.arrays.data(), one.arrays.size());
                one.core.go_on();
            }
            this_core = nullptr;
            one.arrays.assign((char*)arrays.begin, (char*)arrays.begin + arrays.size);
            waiting += one.core.waits_for_grid() != nullptr;
        }
        all = waiting == 0;
        for (uint64_t n = 0; waiting && waiting < grid.num_blocks && !grid.stop; ++n) {
            const Thread* thread = members[n]->core.waits_for_grid();
            if (!thread) continue;
            Failure failure = failure_of(members[n]->core, Kind::deadlock, thread->site, nullptr,
                                         "the grid, of which a thread block has ended");
            failure.block = members[n]->core.block;
            failure.thread = thread->index;
            failure.in_kernel = failure.count = 1;
            grid_failed(failure);
        }
    }
}

}  // namespace emulator
