// A small container. That of the standard library would take longer to compile than all else.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <utility>
#include <vector>

namespace emulator {

// A hash table from numbers to values, with open addressing.
template <class Value>
class Table {
  public:
    // The value of a key; Value() if the key is new.
    Value& at(uint64_t key, bool* added) {
        if (count_ * 2 >= slots_.size()) grow();
        Slot* slot = find(key);
        *added = !slot->used;
        if (*added) {
            *slot = {key, Value(), true};
            ++count_;
        }
        return slot->value;
    }
    template <class Visit>
    void each(Visit visit) {
        for (Slot& slot : slots_) {
            if (slot.used) visit(slot.key, slot.value);
        }
    }
    void clear() {
        slots_.clear();
        count_ = 0;
    }

  private:
    struct Slot {
        uint64_t key;
        Value value;
        bool used;
    };

    Slot* find(uint64_t key) {
        size_t place = (key * 0x9e3779b97f4a7c15u) >> 20;  // 2^64 over the golden ratio
        while (slots_[place %= slots_.size()].used && slots_[place].key != key) ++place;
        return &slots_[place];
    }
    void grow() {
        std::vector<Slot> before(slots_.empty() ? 64 : slots_.size() * 2);
        before.swap(slots_);
        for (Slot& slot : before) {
            if (slot.used) *find(slot.key) = std::move(slot);
        }
    }

    std::vector<Slot> slots_;
    size_t count_ = 0;
};

}  // namespace emulator
