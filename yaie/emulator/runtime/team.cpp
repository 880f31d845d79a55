// The thread blocks of a team: their shared memory, how one reaches another's, and their barrier.
//
// Each has its own dynamic shared memory. The static arrays of a file are thread-local variables: the
// first thread block has those, the others have them `shift` bytes further on, see emulator::Raw.
#include <stdlib.h>
#include <sys/mman.h>

#include "calls.h"
#include "core.h"
#include "failure.h"
#include "observer.h"

namespace emulator {
namespace {

constexpr size_t rounded_shared = 256 * 1024;  // bytes, whole pages of any size
constexpr size_t page = 4096;

uint3 index_of(uint64_t linear, uint3 extent) {
    return {(unsigned)(linear % extent.x), (unsigned)(linear / extent.x % extent.y),
            (unsigned)(linear / extent.x / extent.y)};
}

unsigned char* end_of_new_memory() {
    void* memory = mmap(nullptr, rounded_shared + shared_guard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect((char*)memory + rounded_shared, shared_guard, PROT_NONE);
    return static_cast<unsigned char*>(memory) + rounded_shared;
}

}  // namespace

uint3 Core::index_of_block(uint64_t team, uint32_t thread) const {
    const uint3 g = launch->grid, c = launch->cluster;
    const uint64_t number = team * blocks.size() + thread / pitch;
    const uint3 first = index_of(number / cluster, {g.x / c.x, g.y / c.y, g.z / c.z});
    const uint3 rest = index_of(number % cluster, c);
    return {first.x * c.x + rest.x, first.y * c.y + rest.y, first.z * c.z + rest.z};
}

void Core::prepare_blocks() {
    blocks.resize(team_size(*launch));
    cluster = (uint32_t)volume(launch->cluster);
    while (shared_.size() < blocks.size()) shared_.push_back(end_of_new_memory());
    pitch = pitch_of(*launch, count, blocks.size() == 1);
    slots = pitch * (uint32_t)blocks.size();
    gatherings_.clear();
    for (uint32_t first = 0; first < slots; first += cluster * pitch) {
        gatherings_.push_back({first, first + cluster * pitch});
    }
    gatherings_.push_back({0, slots});
    size_t room = statics_size_ = 0;
    if (blocks.size() > 1) {
        const Module module = module_around(code.begin);
        statics_ = module.shared, statics_size_ = module.shared_size;
        room = (statics_size_ / page + 1) * page;
        if (arrays_size_ < room * (blocks.size() + 1)) {
            arrays_size_ = room * (blocks.size() + 1);
            arrays_.reset(new unsigned char[arrays_size_]);
        }
    }
    const uintptr_t memory = ((uintptr_t)arrays_.get() / page + 1) * page + statics_ % page;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const size_t bytes = (launch->shared_bytes + 1023) / 1024 * 1024;
        const ptrdiff_t shift = i ? (ptrdiff_t)(memory + room * (i - 1) - statics_) : 0;
        const uint32_t first = pitch * (uint32_t)i;
        blocks[i] = {index_of_block(team_number, first), shared_[i], shared_[i] - bytes, shift, first,
                     count, 0, 0, 0, 0, 0, 0, nullptr, {}};
    }
}

Block* Core::owner(const void* address) {
    const auto place = (uintptr_t)address;
    for (Block& block : blocks) {
        if ((uintptr_t)block.shared_end - place - 1 < rounded_shared) return &block;
        if (place - block.shift - statics_ < statics_size_) return &block;
    }
    return nullptr;
}

void* Core::mapped(const void* address, uint32_t rank, const void* site) {
    if (rank >= cluster) {
        fault(*this, Kind::cluster, site, nullptr, "names thread block %u of a cluster of %u", rank,
              cluster);
    }
    if (cluster == 1) return const_cast<void*>(address);
    const Block* from = owner(address);
    if (!from) {
        fault(*this, Kind::cluster, site, nullptr,
              "asks where another thread block has what is not in shared memory");
    }
    const Block& to = blocks[here - &blocks[0] - rank_of(*here) + rank];
    const bool is_static = (uintptr_t)address - from->shift - statics_ < statics_size_;
    return (char*)address + (is_static ? to.shift - from->shift : to.shared_end - from->shared_end);
}

Gathering& Core::gathering(const Thread& thread, bool of_grid) {
    return of_grid ? gatherings_.back() : gatherings_[(thread.block - &blocks[0]) / cluster];
}

void Core::gather_sync(bool of_grid, const void* site) {
    if (of_grid && !launch->cooperative) {
        fault(*this, Kind::deadlock, site, nullptr,
              "the grid, which cudaLaunchCooperativeKernel has not launched");
    }
    gather(of_grid, true, site, true);
    gather_wait(of_grid, true, site);
}

void Core::gather(bool of_grid, bool releases, const void* site, bool waits) {
    if (attention) attend(site);
    Thread& me = *current;
    if (me.gathered[of_grid]) {
        fault(*this, Kind::cluster, site, nullptr,
              "arrives at the cluster's barrier again, without having waited there");
    }
    Gathering& here = gathering(me, of_grid);
    me.gathered[of_grid] = here.phase;
    me.site = site;
    ++here.arrived;
    here.all_sync &= waits;
    if (checking) observer->gives(*this, &here, releases);
    release(here);
}

void Core::gather_wait(bool of_grid, bool acquires, const void* site) {
    Thread& me = *current;
    if (!me.gathered[of_grid]) {
        fault(*this, Kind::cluster, site, nullptr,
              "waits at the cluster's barrier, where it has not arrived");
    }
    Gathering& here = gathering(me, of_grid);
    if (me.gathered[of_grid] == here.phase) suspend(State::at_team, site, &here);
    me.gathered[of_grid] = 0;
    if (checking && acquires) observer->takes(*this, &here, me.linear);
}

// A cluster's barrier is that of the threads that have not ended, a grid's that of all but those that
// the checker has ended.
void Core::release(Gathering& one) {
    if (!one.arrived) return;
    uint32_t all = 0, alive = 0, killed = 0;
    for (uint32_t i = one.first / pitch; i < one.end / pitch; ++i) {
        all += count, alive += blocks[i].alive, killed += blocks[i].killed;
    }
    const bool of_grid = &one == &gatherings_.back();
    if (one.arrived < (of_grid ? all - killed : alive + one.left)) return;
    async.progress();
    const bool all_wait = one.all_sync && one.arrived + killed == all;
    if (checking) observer->gathered(*this, one, all_wait);
    one = {one.first, one.end, one.phase + 1};
    wake(State::at_team, &one);
}

}  // namespace emulator
