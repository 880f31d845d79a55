#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>

namespace emulator {
namespace {

constexpr size_t most_bytes = 1ull << 33;  // of cells, for one range

}  // namespace

Shadow::Shadow(size_t bytes) : bytes_(bytes * sizeof(Cell)) {
    if (bytes_ == 0 || bytes_ > most_bytes) return;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) cells_ = static_cast<Cell*>(memory);
}

Shadow::~Shadow() {
    if (cells_) munmap(cells_, bytes_);
}

void Clocks::begin_block(uint32_t num_threads) {
    known_.assign((size_t)num_threads * 32, 0);
    for (uint32_t thread = 0; thread < num_threads; ++thread) known_[thread * 32 + thread % 32] = 1;
}

// After __syncwarp each lane knows what any of them knew; what it does next is new to the others.
void Clocks::join(uint32_t warp, uint32_t lanes) {
    uint32_t joined[32] = {};
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t* known = &known_[(size_t)(warp * 32 + __builtin_ctz(rest)) * 32];
        for (int i = 0; i < 32; ++i) joined[i] = std::max(joined[i], known[i]);
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        uint32_t* known = &known_[(size_t)(warp * 32 + lane) * 32];
        std::copy(joined, joined + 32, known);
        ++known[lane];
    }
}

}  // namespace emulator
