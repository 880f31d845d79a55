#include "counters.h"

#include <algorithm>

namespace emulator {
namespace {

constexpr size_t most_logged = 1 << 23;  // accesses of a thread block between two barriers
constexpr size_t most_sites = 0xffff;

// The number of distinct values. Sorts them.
size_t distinct(uintptr_t* values, size_t count) {
    if (!std::is_sorted(values, values + count)) std::sort(values, values + count);
    return std::unique(values, values + count) - values;
}

// The sectors of 32 bytes that the lanes access, and the fewest that hold as many distinct bytes.
void count_sectors(const uintptr_t* addresses, size_t count, size_t size, uint64_t* units,
                   uint64_t* ideal) {
    uintptr_t sectors[64], places[32];
    size_t num_sectors = 0;
    for (size_t i = 0; i < count; ++i) {
        const uintptr_t first = addresses[i] / 32, last = (addresses[i] + size - 1) / 32;
        for (uintptr_t s = first; s <= last && num_sectors < 64; ++s) sectors[num_sectors++] = s;
        places[i] = addresses[i];
    }
    *units = distinct(sectors, num_sectors);
    *ideal = (distinct(places, count) * size + 31) / 32;
}

// The largest number of distinct 4-byte words in one of the 32 banks.
uint64_t conflicts(const uintptr_t* addresses, size_t count, size_t size) {
    uintptr_t words[128];
    size_t num_words = 0;
    for (size_t i = 0; i < count; ++i) {
        const uintptr_t first = addresses[i] / 4, last = (addresses[i] + size - 1) / 4;
        for (uintptr_t w = first; w <= last && num_words < 128; ++w) words[num_words++] = w;
    }
    num_words = distinct(words, num_words);
    uint64_t in_bank[32] = {}, most = 0;
    for (size_t i = 0; i < num_words; ++i) most = std::max(most, ++in_bank[words[i] % 32]);
    return most;
}

// Whether every lane has the same address as the lane whose number differs in the bit `apart`.
// Inactive lanes do not count.
bool paired(const uintptr_t* addresses, const uint32_t* lanes, size_t count, uint32_t apart) {
    uintptr_t by_lane[32] = {};
    for (size_t i = 0; i < count; ++i) by_lane[lanes[i]] = addresses[i];
    for (size_t i = 0; i < count; ++i) {
        const uintptr_t other = by_lane[lanes[i] ^ apart];
        if (other && other != addresses[i]) return false;
    }
    return true;
}

// Wavefronts of a request to shared memory. Accesses of 8 bytes are served for half a warp at a
// time, of 16 bytes for a quarter; loads for twice as many lanes if paired lanes read the same.
uint64_t count_wavefronts(const uintptr_t* addresses, const uint32_t* lanes, size_t count,
                          const Site& site) {
    uint32_t part = site.size <= 4 ? 32 : site.size <= 8 ? 16 : 8;
    if (part < 32 && site.access == Access::load &&
        (paired(addresses, lanes, count, 1) || paired(addresses, lanes, count, 2))) {
        part *= 2;
    }
    uint64_t total = 0;
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = begin;
        while (end < count && lanes[end] / part == lanes[begin] / part) ++end;
        total += conflicts(addresses + begin, end - begin, site.size);
    }
    return total;
}

}  // namespace

void Counters::clear() {
    sites.clear();
    index_.clear();
    for (Recent& recent : recent_) recent = {};
    logs_.clear();
    logged_ = 0;
    truncated = false;
}

void Counters::begin_block(uint32_t num_threads) {
    if (logs_.size() < num_threads) logs_.resize(num_threads);
    for (auto& log : logs_) log.clear();
    logged_ = 0;
}

uint16_t Counters::site(const void* address, Memory memory, Access access, int size, int range) {
    const uint64_t key = (uint64_t)address << 6 ^ (uint64_t)memory << 2 ^ (uint64_t)access;
    Recent& recent = recent_[key / 64 % num_recent];
    if (recent.key != key) recent = {key, find_site(address, memory, access, size, range, key)};
    return recent.site;
}

uint16_t Counters::find_site(const void* address, Memory memory, Access access, int size,
                             int range, uint64_t key) {
    bool added;
    uint16_t& place = index_.at(key, &added);
    if (!added || sites.size() == most_sites) return place;
    place = (uint16_t)sites.size();
    Site site = {};
    site.address = address;
    site.memory = memory;
    site.access = access;
    site.size = size;
    site.range = range;
    sites.push_back(site);
    return place;
}

void Counters::note(uint32_t thread, uint16_t site, uintptr_t address, uintptr_t range_begin) {
    if (logged_ >= most_logged) {
        truncated = true;
        return;
    }
    ++logged_;
    logs_[thread].push_back({site, address, range_begin});
}

void Counters::count(const Core& core, uint32_t warp, const Request& request) {
    uintptr_t addresses[32];
    uint32_t lanes[32] = {};
    size_t count = 0;
    for (uint32_t lane : Lanes{request.lanes}) {
        lanes[count] = lane;
        addresses[count++] = request.entries[lane]->address;
    }
    const Entry& first = *request.entries[lanes[0]];
    Site& site = sites[first.site];
    uint64_t units, ideal;
    count_sectors(addresses, count, site.size, &units, &ideal);
    if (site.memory == Memory::shared) {
        units = count_wavefronts(addresses, lanes, count, site);
        ideal = (ideal + 3) / 4;  // a wavefront carries 128 bytes
    }
    if (site.requests < 64) site.first_lanes[site.requests] = request.lanes;
    ++site.requests;
    ++site.by_lanes[count];
    site.units += units;
    site.ideal_units += ideal;
    if (units <= site.worst_units) return;
    site.worst_units = (uint32_t)units;
    site.worst_lanes = request.lanes;
    site.worst_block = core.threads[warp * 32].block->index;
    site.worst_thread = core.threads[warp * 32 + lanes[0]].index;
    for (uint32_t lane : Lanes{request.lanes}) {
        const Entry& entry = *request.entries[lane];
        site.worst_offsets[lane] = (int64_t)(entry.address - entry.range_begin);
    }
}

void Counters::flush(const Core& core, uint32_t warp) {
    flush_apart(core, warp, flush_together(core, warp));
    for (uint32_t thread = warp * 32; thread < warp * 32 + 32 && thread < core.slots; ++thread) {
        logged_ -= logs_[thread].size();
        logs_[thread].clear();
    }
}

// As long as the lanes of a warp execute the same instructions, their n-th accesses are one
// request. Returns how many entries were counted.
size_t Counters::flush_together(const Core& core, uint32_t warp) {
    const uint32_t begin = warp * 32, end = std::min(begin + 32, core.slots);
    for (size_t n = 0;; ++n) {
        Request request;
        for (uint32_t thread = begin; thread < end; ++thread) {
            if (n >= logs_[thread].size()) continue;
            const Entry* entry = &logs_[thread][n];
            if (request.lanes &&
                request.entries[__builtin_ctz(request.lanes)]->site != entry->site) {
                return n;
            }
            request.entries[thread - begin] = entry;
            request.lanes |= 1u << (thread - begin);
        }
        if (!request.lanes) return n;
        count(core, warp, request);
    }
}

// Where lanes have diverged, the k-th execution of an instruction by each lane since they last
// synchronized counts as one request.
void Counters::flush_apart(const Core& core, uint32_t warp, size_t from) {
    const uint32_t begin = warp * 32, end = std::min(begin + 32, core.slots);
    std::vector<Request> requests;
    Table<uint32_t> numbers;  // of requests, by site and k
    for (uint32_t thread = begin; thread < end; ++thread) {
        Table<uint32_t> times;  // executions so far, by site
        const auto& log = logs_[thread];
        for (size_t n = from; n < log.size(); ++n) {
            bool added;
            const uint64_t time = times.at(log[n].site, &added)++;
            uint32_t& number = numbers.at(time << 16 | log[n].site, &added);
            if (added) {
                number = (uint32_t)requests.size();
                requests.emplace_back();
            }
            requests[number].entries[thread - begin] = &log[n];
            requests[number].lanes |= 1u << (thread - begin);
        }
    }
    for (const Request& request : requests) count(core, warp, request);
}

}  // namespace emulator
