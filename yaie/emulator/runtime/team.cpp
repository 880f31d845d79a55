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
    const uint3 g = launch->grid, t = team_of(*launch);
    const uint3 first = index_of(team, {g.x / t.x, g.y / t.y, g.z / t.z});
    const uint3 rest = index_of(thread / pitch, t);
    return {first.x * t.x + rest.x, first.y * t.y + rest.y, first.z * t.z + rest.z};
}

void Core::prepare_blocks() {
    const uint3 t = team_of(*launch), c = launch->cluster;
    blocks.resize(t.x * t.y * t.z);
    cluster = c.x * c.y * c.z;
    while (shared_.size() < blocks.size()) shared_.push_back(end_of_new_memory());
    pitch = pitch_of(*launch, count, blocks.size() == 1);
    slots = pitch * (uint32_t)blocks.size();
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
                     count, 0, 0, 0, 0, 0, nullptr, {}};
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

void Core::need_cluster(const void* site) {
    if (!launch->cooperative) return;
    fault(*this, Kind::deadlock, site, nullptr,
          "the cluster, which a cooperative launch does not have here");
}

void Core::team_sync(bool of_grid, const void* site) {
    if (!of_grid) need_cluster(site);
    if (of_grid && !launch->cooperative) {
        fault(*this, Kind::deadlock, site, nullptr,
              "the grid, which cudaLaunchCooperativeKernel has not launched");
    }
    team_arrive(true, site, true);
    team_wait(true, site);
}

void Core::team_arrive(bool releases, const void* site, bool waits) {
    if (attention) attend(site);
    Thread& me = *current;
    if (me.team_phase) {
        fault(*this, Kind::cluster, site, nullptr,
              "arrives at the cluster's barrier again, without having waited there");
    }
    me.team_phase = team_phase_;
    me.site = site;
    ++at_team_;
    all_sync_ &= waits;
    if (checking) observer->team_arrive(*this, releases);
    release_team();
}

void Core::team_wait(bool acquires, const void* site) {
    Thread& me = *current;
    if (!me.team_phase) {
        fault(*this, Kind::cluster, site, nullptr,
              "waits at the cluster's barrier, where it has not arrived");
    }
    if (me.team_phase == team_phase_) suspend(State::at_team, site);
    me.team_phase = 0;
    if (checking && acquires) observer->team_seen(*this);
}

// A cluster's barrier is that of the threads that have not ended, a grid's that of all but those that
// the checker has ended.
void Core::release_team() {
    const uint32_t all = (uint32_t)order_.size();
    const uint32_t awaited = launch->cooperative ? all - killed_ : alive_ + left_;
    if (!at_team_ || at_team_ < awaited) return;
    async.progress();
    if (checking) observer->team_passes(*this, all_sync_ && at_team_ + killed_ == all);
    ++team_phase_;
    at_team_ = left_ = 0;
    all_sync_ = true;
    for (uint32_t i = 0; i < slots; ++i) {
        if (threads[i].state == State::at_team) threads[i].state = State::ready;
    }
}

}  // namespace emulator
