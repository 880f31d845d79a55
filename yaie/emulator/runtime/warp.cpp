// Shuffles, votes and reductions. A lane that arrives stores its value and waits; the last lane of
// the mask computes the results of all lanes, while all their values are still stored.
#include "core.h"
#include "failure.h"
#include "observer.h"
#include "tiles.h"

namespace emulator {
namespace {

constexpr uint64_t undefined = ~0ull;  // a NaN in every floating-point format

// The lane that a shuffle reads, by the rules of the CUDA programming guide.
uint32_t source_lane(const Thread& thread) {
    const int lane = (int)thread.lane(), width = thread.width, by = thread.parameter;
    const int first = lane & ~(width - 1), last = first + width - 1;
    int source = lane ^ by;
    switch (thread.operation) {
        case Collective::shuffle: return (uint32_t)(first + (by & (width - 1)));
        case Collective::shuffle_up: source = lane - by; break;
        case Collective::shuffle_down: source = lane + by; break;
        default: break;
    }
    const bool up = thread.operation == Collective::shuffle_up;
    const bool outside = up ? source < first : source > last || source < 0 || source > 31;
    return (uint32_t)(outside ? lane : source);
}

bool is_shuffle(Collective operation) {
    return operation >= Collective::shuffle && operation <= Collective::shuffle_xor;
}

// The result of an operation that returns the same value to every lane.
uint64_t reduce(Collective operation, const Thread* warp, uint32_t lanes) {
    const uint64_t first = warp[*Lanes{lanes}].value;
    uint32_t total = (uint32_t)first, ballot = 0;
    bool equal = true;
    for (uint32_t lane : Lanes{lanes}) {
        const uint32_t value = (uint32_t)warp[lane].value;
        ballot |= (value != 0 ? 1u : 0u) << lane;
        equal = equal && warp[lane].value == first;
        if (lane == *Lanes{lanes}) continue;
        switch (operation) {
            case Collective::add: total += value; break;
            case Collective::min_signed: if ((int32_t)value < (int32_t)total) total = value; break;
            case Collective::max_signed: if ((int32_t)value > (int32_t)total) total = value; break;
            case Collective::min_unsigned: if (value < total) total = value; break;
            case Collective::max_unsigned: if (value > total) total = value; break;
            case Collective::bit_and: total &= value; break;
            case Collective::bit_or: total |= value; break;
            case Collective::bit_xor: total ^= value; break;
            default: break;
        }
    }
    switch (operation) {
        case Collective::any: return ballot != 0;
        case Collective::all: return ballot == lanes;
        case Collective::ballot: return ballot;
        case Collective::match_all: return equal ? lanes : 0;
        default: return total;
    }
}

uint32_t equal_lanes(const Thread* warp, uint32_t lanes, uint64_t value) {
    uint32_t equal = 0;
    for (uint32_t lane : Lanes{lanes}) equal |= (warp[lane].value == value ? 1u : 0u) << lane;
    return equal;
}

}  // namespace

uint64_t Core::collective(Collective operation, uint32_t mask, uint64_t value, int parameter,
                          int width, const void* site) {
    if (attention) attend(site);
    Thread* me = current;
    const uint32_t bit = 1u << me->lane();
    me->operation = operation;
    me->value = value;
    me->parameter = parameter;
    me->width = width;
    me->site = site;
    me->outside_mask = !(mask & bit);
    if (checking && operation != Collective::sync) observer->collective(*this);
    if (checking && me->outside_mask) observer->outside_own_mask(*this);
    me->mask = mask | bit;
    me->state = State::at_collective;
    const uint32_t warp = me->linear / 32;
    warps_[warp].waiting |= bit;
    try_collective(warp, me->mask);
    try_converge(warp);
    yield();
    return me->result;
}

// The lanes that ask at the same place, once no other lane of the warp can run: on a GPU lanes that
// have diverged would be elsewhere, too.
uint32_t Core::active_lanes(const void* site) {
    if (attention) attend(site);
    Thread* me = current;
    me->site = site;
    me->state = State::converging;
    warps_[me->linear / 32].converging |= 1u << me->lane();
    try_converge(me->linear / 32);
    yield();
    return (uint32_t)me->result;
}

void Core::try_converge(uint32_t warp) {
    uint32_t rest = warps_[warp].converging;
    if (!rest) return;
    Thread* lanes = &threads[warp * 32];
    for (uint32_t lane : Lanes{warps_[warp].alive}) {
        if (lanes[lane].state == State::fresh || can_run(&lanes[lane])) return;
    }
    warps_[warp].converging = 0;
    while (rest) {
        const void* site = lanes[*Lanes{rest}].site;
        uint32_t together = 0;
        for (uint32_t lane : Lanes{rest}) together |= (lanes[lane].site == site ? 1u : 0u) << lane;
        for (uint32_t lane : Lanes{together}) {
            lanes[lane].state = State::ready;
            lanes[lane].result = together;
        }
        rest &= ~together;
    }
}

// Completes the collective if every live lane of the mask has arrived with that mask.
void Core::try_collective(uint32_t warp, uint32_t mask) {
    const uint32_t needed = mask & warps_[warp].alive;
    if (!needed || (warps_[warp].waiting & needed) != needed) return;
    for (uint32_t lane : Lanes{needed}) {
        if (threads[warp * 32 + lane].mask != mask) return;
    }
    if (checking) observer->meet(*this, warp, needed, needed == warps_[warp].alive);
    evaluate(warp, needed);
    warps_[warp].waiting &= ~needed;
}

// A lane needs the values of all lanes or, of each matrix, the address of one row; transposed, of two.
void Core::gather_rows(uint32_t warp, uint32_t lanes) {
    Thread* members = &threads[warp * 32];
    uint32_t giving = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const bool gives = lanes >> lane & 1 && members[lane].operation == Collective::gather;
        warps_[warp].gathered[lane] = gives ? members[lane].value : undefined;
        giving |= (gives ? 1u : 0u) << lane;
    }
    if (!checking || giving == ~0u) return;
    for (uint32_t lane : Lanes{giving}) {
        const Thread& thread = members[lane];
        const bool transposed = thread.width;
        for (uint32_t source : Lanes{thread.parameter ? 0 : ~giving}) {
            observer->inactive_lane(*this, thread, source);
        }
        for (uint32_t matrix = 0; matrix < (uint32_t)thread.parameter; ++matrix) {
            const uint32_t first = matrix * 8 + (transposed ? lane % 4 * 2 : lane / 4);
            for (uint32_t source = first; source <= first + transposed; ++source) {
                if (!(giving >> source & 1)) observer->inactive_lane(*this, thread, source);
            }
        }
    }
}

// A lane needs the registers of the lanes that hold its rows of A and its columns of B.
void Core::multiply(uint32_t warp, uint32_t lanes) {
    Thread* members = &threads[warp * 32];
    LaneTile* tiles[32] = {};
    uint32_t giving = 0;
    for (uint32_t lane : Lanes{lanes}) {
        if (members[lane].operation != Collective::multiply) continue;
        tiles[lane] = reinterpret_cast<LaneTile*>(members[lane].value);
        giving |= 1u << lane;
    }
    multiply_tiles(tiles);
    if (!checking || giving == ~0u) return;
    for (uint32_t lane : Lanes{giving}) {
        for (uint32_t other = 0; other < 4; ++other) {
            const uint32_t row = lane / 4 * 4 + other, column = lane % 4 * 8 + other;
            for (uint32_t source : {row, column, column + 4}) {
                if (!(giving >> source & 1)) observer->inactive_lane(*this, members[lane], source);
            }
        }
    }
}

void Core::evaluate(uint32_t warp, uint32_t lanes) {
    Thread* members = &threads[warp * 32];
    Collective reduced = Collective::none;
    uint64_t common = 0;
    bool gathers = false, multiplies = false;
    for (uint32_t lane : Lanes{lanes}) {
        Thread& thread = members[lane];
        thread.state = State::ready;
        if (thread.operation == Collective::gather) {
            gathers = true;
        } else if (thread.operation == Collective::multiply) {
            multiplies = true;
        } else if (is_shuffle(thread.operation)) {
            const uint32_t source = source_lane(thread);
            const bool present = lanes >> source & 1;
            thread.result = present ? members[source].value : undefined;
            if (checking && !present) observer->inactive_lane(*this, thread, source);
        } else if (thread.operation == Collective::match_any) {
            thread.result = equal_lanes(members, lanes, thread.value);
        } else if (thread.operation != Collective::sync) {
            if (thread.operation != reduced) {
                reduced = thread.operation;
                common = reduce(reduced, members, lanes);
            }
            thread.result = common;
        }
    }
    if (gathers) gather_rows(warp, lanes);
    if (multiplies) multiply(warp, lanes);
}

}  // namespace emulator

// Report a tile of wmma that the hardware cannot load or store.
extern "C" void emulator_refuse_tile(const void* tile, size_t row_bytes) {
    using namespace emulator;
    const void* site = __builtin_return_address(0);
    if ((uintptr_t)tile % 32) {
        fault(*this_core, Kind::misaligned, site, nullptr,
              "a tile of wmma begins at an address that is no multiple of 32 bytes");
    }
    fault(*this_core, Kind::misaligned, site, nullptr,
          "the rows of a tile of wmma are %zu bytes apart, no multiple of 16", row_bytes);
}
