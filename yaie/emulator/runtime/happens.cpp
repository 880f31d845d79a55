#include "happens.h"

#include <algorithm>

#include "core.h"

namespace emulator {

bool Seen::has(uint32_t thread, uint32_t time) const {
    if (covers(thread, time)) return true;
    const auto found = std::lower_bound(above.begin(), above.end(), std::make_pair(thread, time));
    return found != above.end() && found->first == thread;  // its time is not less
}

void Seen::add(uint32_t thread, uint32_t time) {
    if (covers(thread, time)) return;
    const auto found = std::lower_bound(above.begin(), above.end(), std::make_pair(thread, 0u));
    if (found == above.end() || found->first != thread) {
        above.insert(found, {thread, time});
    } else {
        found->second = std::max(found->second, time);
    }
}

void Seen::join(const Seen& other) {
    if (other.is_empty()) return;
    floor = std::max(floor, other.floor);
    if (level <= floor) first = other.first, end = other.end, level = 0;
    if (first == other.first && end == other.end) {
        level = std::max(level, other.level);
    } else {
        for (uint32_t thread = other.first; thread < other.end; ++thread) add(thread, other.level);
    }
    if (other.above.size() < 4) {
        for (const auto& one : other.above) add(one.first, one.second);
        return;
    }
    auto a = above.begin();
    auto b = other.above.begin();
    for (; b != other.above.end(); ++b) {  // in place, while no thread is new
        while (a != above.end() && a->first < b->first) ++a;
        if (a == above.end() || a->first != b->first) break;
        a->second = std::max(a->second, b->second);
    }
    if (b == other.above.end()) return;
    std::vector<std::pair<uint32_t, uint32_t>> both;
    both.reserve(above.size() + other.above.size());
    a = above.begin(), b = other.above.begin();
    while (a != above.end() || b != other.above.end()) {
        const bool first = b == other.above.end() || (a != above.end() && a->first <= b->first);
        const bool same = first && b != other.above.end() && a != above.end() && a->first == b->first;
        auto one = first ? *a++ : *b++;
        if (same) one.second = std::max(one.second, (b++)->second);
        if (!covers(one.first, one.second)) both.push_back(one);
    }
    above.swap(both);
}

void HappensBefore::begin_launch() {
    objects_.clear();
    any_released_ = false;
    kept_.assign(1, Seen());  // number 0: nothing
    block_ = (size_t)-1;
}

void HappensBefore::begin_block(uint32_t num_threads, uint32_t pitch) {
    ++block_;
    pitch_ = pitch;
    known_.assign((size_t)num_threads * 32, 0);
    used_.assign(num_threads, 0);
    if (more_.size() < num_threads) more_.resize(num_threads);
    with_more_.clear();
    all_acquired_.clear();
    all_fenced_.clear();
    floor_ = 0;
    highest_ = 2;
}

bool HappensBefore::has_seen_earlier(uint32_t thread, size_t block, uint32_t other, uint32_t time,
                                     bool pending) const {
    auto has = [&](const Knowledge& knowledge) {
        return block < knowledge.earlier.size() &&
               kept_[knowledge.earlier[block]].has(other, time);
    };
    if (has(all_acquired_) || !used_[thread]) return has(all_acquired_);
    return has(more_[thread].acquired) || (pending && has(more_[thread].pending));
}

HappensBefore::More& HappensBefore::more(uint32_t thread) {
    if (!used_[thread]) {
        used_[thread] = 1;
        more_[thread] = More();
        with_more_.push_back(thread);
    }
    return more_[thread];
}

void HappensBefore::join_earlier(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    if (from.size() > to.size()) to.resize(from.size());
    for (size_t block = 0; block < from.size(); ++block) {
        if (to[block] == from[block] || !from[block]) continue;
        if (to[block]) {
            Seen both = kept_[to[block]];
            both.join(kept_[from[block]]);
            to[block] = (uint32_t)kept_.size();
            kept_.push_back(std::move(both));
        } else {
            to[block] = from[block];
        }
    }
}

void HappensBefore::join(Knowledge& to, const Knowledge& from) {
    to.here.join(from.here);
    for (int i = 0; i < num_proxies; ++i) to.fenced[i].join(from.fenced[i]);
    join_earlier(to.earlier, from.earlier);
}

void HappensBefore::advance(uint32_t thread) {
    const uint32_t next = now(thread, false) + 1;
    known_[thread * 32 + thread % 32] = next;
    highest_ = std::max(highest_, next + 1);
}

// All threads have seen all up to now. What some had acquired or fenced holds for all of them.
void HappensBefore::barrier() {
    for (uint32_t thread : with_more_) {
        More& one = more_[thread];
        const auto& seen = one.acquired.here.above;
        for (auto agent = std::lower_bound(seen.begin(), seen.end(), std::make_pair(first_agent, 0u));
             agent != seen.end(); ++agent) {
            all_acquired_.here.add(agent->first, agent->second);
        }
        for (int i = 0; i < num_proxies; ++i) {
            all_acquired_.fenced[i].join(one.acquired.fenced[i]);
        }
        join_earlier(all_acquired_.earlier, one.acquired.earlier);
        join_earlier(all_acquired_.earlier, one.pending.earlier);
        join(all_fenced_, one.fenced);
        used_[thread] = 0;
    }
    with_more_.clear();
    floor_ = highest_;
    highest_ = floor_ + 2;
}

void HappensBefore::join(More& to, uint32_t thread) {
    if (!used_[thread]) return;
    const More& one = more_[thread];
    join(to.acquired, one.acquired);
    join(to.acquired, one.pending);
    join(to.fenced, one.fenced);
    join(to.fenced_here, one.fenced_here);
}

void HappensBefore::barrier(uint32_t first, uint32_t end) {
    More all;
    all.acquired = all_acquired_;
    Seen& seen = all.acquired.here;
    seen.floor = floor_, seen.first = first, seen.end = end;
    for (uint32_t thread = first; thread < end; ++thread) {
        seen.level = std::max(seen.level, now(thread, false));
    }
    for (uint32_t thread = first; thread < end; ++thread) {
        join(all, thread);
        known_[thread * 32 + thread % 32] = seen.level;  // each thread's next time is later
    }
    all.all_fenced = !all.fenced.is_empty();  // what one has fenced holds for all, as above
    for (uint32_t thread = first; thread < end; ++thread) more(thread) = all, advance(thread);
}

bool HappensBefore::has_met(uint32_t thread, uint32_t first, uint32_t end) const {
    if (floor_) return true;
    if (!used_[thread]) return false;
    const Seen& seen = more_[thread].acquired.here;
    const auto found = std::lower_bound(seen.above.begin(), seen.above.end(), std::make_pair(first, 0u));
    return (found != seen.above.end() && found->first < end) ||
           (seen.level && first < seen.end && seen.first < end);
}

// After __syncwarp each lane has seen all that any of them had seen; its next accesses are unseen.
void HappensBefore::join(uint32_t warp, uint32_t lanes) {
    uint32_t joined[32] = {};
    bool any_more = false;
    for (uint32_t lane : Lanes{lanes}) {
        const uint32_t thread = warp * 32 + lane;
        const uint32_t* known = &known_[(size_t)thread * 32];
        for (int i = 0; i < 32; ++i) joined[i] = std::max(joined[i], known[i]);
        joined[lane] = std::max(joined[lane], now(thread, false));
        any_more |= used_[thread] != 0;
    }
    More all;
    for (uint32_t lane : Lanes{any_more ? lanes : 0}) join(all, warp * 32 + lane);
    for (uint32_t lane : Lanes{lanes}) {
        const uint32_t thread = warp * 32 + lane;
        std::copy(joined, joined + 32, &known_[(size_t)thread * 32]);
        advance(thread);
        if (any_more) more(thread) = all;
    }
}

Knowledge HappensBefore::seen_by(uint32_t thread) {
    Knowledge seen = all_acquired_;
    seen.here.floor = floor_;
    if (used_[thread]) join(seen, more_[thread].acquired);
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t other = thread / 32 * 32 + lane, time = known_[thread * 32 + lane];
        if (time > floor_) seen.here.add(other, time);
    }
    seen.here.add(thread, now(thread, false));
    return seen;
}

void HappensBefore::fence(uint32_t thread, bool device, bool stored) {
    More& one = more(thread);
    one.all_fenced = device || (one.all_fenced && !stored);
    join(one.acquired, one.pending);
    one.pending.clear();
    Knowledge seen = seen_by(thread);
    one.fenced_here = seen;
    if (device) one.fenced = std::move(seen);
    advance(thread);
}

void HappensBefore::fence_proxies(uint32_t thread, int proxies) {
    const Seen seen = seen_by(thread).here;
    for (int i = 0; i < num_proxies; ++i) {
        if (proxies >> i & 1) more(thread).acquired.fenced[i] = seen;
    }
    advance(thread);
}

void HappensBefore::give(uint32_t thread, Knowledge& to) {
    join(to, seen_by(thread));
    advance(thread);
}

HappensBefore::Object& HappensBefore::at(uintptr_t address, bool until_end) {
    bool added;
    Object& object = objects_.at(address, &added);
    if (!added && object.block != block_) {
        if (until_end) {
            object.released.clear();
        } else if (!object.released.here.is_empty()) {
            object.released.earlier.resize(
                std::max(object.released.earlier.size(), object.block + 1));
            object.released.earlier[object.block] = (uint32_t)kept_.size();
            kept_.push_back(std::move(object.released.here));
            object.released.here = Seen();
            for (Seen& fenced : object.released.fenced) fenced.clear();
        }
        object.released_here.clear();
    }
    object.block = block_;
    return object;
}

void HappensBefore::acquire(uint32_t thread, uintptr_t address, bool until_end) {
    if (!any_released_) return;
    const Object& object = at(address, until_end);
    if (object.released.is_empty() && object.released_here.empty()) return;
    More& one = more(thread);
    join(one.pending, object.released);
    const size_t own = thread / pitch_;
    if (own < object.released_here.size()) join(one.pending, object.released_here[own]);
}

void HappensBefore::release(uint32_t thread, uintptr_t address, bool until_end) {
    const bool own = used_[thread] && !more_[thread].fenced_here.is_empty();
    if (!own && all_fenced_.is_empty()) return;
    any_released_ = true;
    Object& object = at(address, until_end);
    const uint32_t time = now(thread, true);
    auto publish = [&](const Knowledge& fenced) {
        if (fenced.is_empty()) return;
        join(object.released, fenced);
        // What it has stored since, behind a fence for the thread block, is not released.
        if (!own || more_[thread].all_fenced) object.released.here.add(thread, time);
    };
    publish(all_fenced_);
    if (!own) return;
    publish(more_[thread].fenced);
    const size_t block = thread / pitch_;
    if (block >= object.released_here.size()) object.released_here.resize(block + 1);
    join(object.released_here[block], more_[thread].fenced_here);
    object.released_here[block].here.add(thread, time);
}

}  // namespace emulator
