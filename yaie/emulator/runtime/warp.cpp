// Shuffles, votes and reductions. A lane that arrives stores its value and waits; the last lane of
// the mask computes the results of all lanes, while all their values are still stored.
#include "core.h"
#include "observer.h"

namespace emulator {
namespace {

constexpr uint64_t undefined = ~0ull;  // a NaN in every floating-point format

// The lane that a shuffle reads, by the rules of the CUDA programming guide.
uint32_t source_lane(const Thread& thread) {
    const int lane = (int)thread.lane(), width = thread.width;
    const int first = lane & ~(width - 1), last = first + width - 1;
    switch (thread.operation) {
        case Collective::shuffle: return (uint32_t)(first + (thread.parameter & (width - 1)));
        case Collective::shuffle_up: {
            const int source = lane - thread.parameter;
            return (uint32_t)(source < first ? lane : source);
        }
        case Collective::shuffle_down: {
            const int source = lane + thread.parameter;
            return (uint32_t)(source > last ? lane : source);
        }
        default: {
            const int source = lane ^ thread.parameter;
            return (uint32_t)(source > last || source > 31 || source < 0 ? lane : source);
        }
    }
}

bool is_shuffle(Collective operation) {
    return operation >= Collective::shuffle && operation <= Collective::shuffle_xor;
}

// The result of an operation that returns the same value to every lane.
uint64_t reduce(Collective operation, const Thread* warp, uint32_t lanes) {
    uint32_t total = 0, ballot = 0, both = ~0u, any = 0, odd = 0;
    uint32_t smallest = ~0u, largest = 0;
    int32_t least = INT32_MAX, most = INT32_MIN;
    bool equal = true;
    const uint64_t first = warp[__builtin_ctz(lanes)].value;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        const uint32_t value = (uint32_t)warp[lane].value;
        total += value;
        ballot |= (value != 0 ? 1u : 0u) << lane;
        both &= value;
        any |= value;
        odd ^= value;
        smallest = value < smallest ? value : smallest;
        largest = value > largest ? value : largest;
        least = (int32_t)value < least ? (int32_t)value : least;
        most = (int32_t)value > most ? (int32_t)value : most;
        equal = equal && warp[lane].value == first;
    }
    switch (operation) {
        case Collective::any: return ballot != 0;
        case Collective::all: return ballot == lanes;
        case Collective::ballot: return ballot;
        case Collective::match_all: return equal ? lanes : 0;
        case Collective::add: return total;
        case Collective::min_signed: return (uint32_t)least;
        case Collective::max_signed: return (uint32_t)most;
        case Collective::min_unsigned: return smallest;
        case Collective::max_unsigned: return largest;
        case Collective::bit_and: return both;
        case Collective::bit_or: return any;
        case Collective::bit_xor: return odd;
        default: return 0;
    }
}

uint32_t equal_lanes(const Thread* warp, uint32_t lanes, uint64_t value) {
    uint32_t equal = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        if (warp[lane].value == value) equal |= 1u << lane;
    }
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
    for (uint32_t alive = warps_[warp].alive; alive; alive &= alive - 1) {
        const Thread& lane = lanes[__builtin_ctz(alive)];
        if (lane.state == State::fresh || can_run(&lane)) return;
    }
    warps_[warp].converging = 0;
    while (rest) {
        const void* site = lanes[__builtin_ctz(rest)].site;
        uint32_t together = 0;
        for (uint32_t others = rest; others; others &= others - 1) {
            const uint32_t lane = __builtin_ctz(others);
            if (lanes[lane].site == site) together |= 1u << lane;
        }
        for (uint32_t others = together; others; others &= others - 1) {
            lanes[__builtin_ctz(others)].state = State::ready;
            lanes[__builtin_ctz(others)].result = together;
        }
        rest &= ~together;
    }
}

// Completes the collective if every live lane of the mask has arrived with that mask.
void Core::try_collective(uint32_t warp, uint32_t mask) {
    const uint32_t needed = mask & warps_[warp].alive;
    if (!needed || (warps_[warp].waiting & needed) != needed) return;
    for (uint32_t rest = needed; rest; rest &= rest - 1) {
        if (threads[warp * 32 + __builtin_ctz(rest)].mask != mask) return;
    }
    if (checking) observer->meet(*this, warp, needed, needed == warps_[warp].alive);
    evaluate(warp, needed);
    warps_[warp].waiting &= ~needed;
}

void Core::evaluate(uint32_t warp, uint32_t lanes) {
    Thread* members = &threads[warp * 32];
    Collective reduced = Collective::none;
    uint64_t common = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        Thread& thread = members[__builtin_ctz(rest)];
        thread.state = State::ready;
        if (is_shuffle(thread.operation)) {
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
}

}  // namespace emulator
