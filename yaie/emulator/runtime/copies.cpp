// Asynchronous copies (cp.async). A thread starts copies, closes groups of them, and waits until all
// but its newest groups have landed. When a copy lands, async.h says.
#include <string.h>

#include "core.h"
#include "observer.h"

namespace emulator {
namespace {

void move(Copy& copy) {
    if (copy.landed) return;
    copy.landed = true;
    const size_t read = copy.size - copy.zeros;
    memcpy(copy.to, copy.from, read);
    memset(static_cast<char*>(copy.to) + read, 0, copy.zeros);
}

}  // namespace

void Async::land_copies(Thread& thread, uint64_t started) {
    const uint64_t waited = thread.copies_started - thread.copies.size();
    for (size_t i = 0; i < thread.copies.size() && waited + i < started; ++i) move(thread.copies[i]);
}

void Async::start_copy(const Copy& copy) {
    Thread& me = *core_.current;
    me.copies.push_back(copy);
    ++me.copies_started;
    if (order_ == Order::reverse) move(me.copies.back());
    if (order_ == Order::random && random() % 2) move(me.copies[random() % me.copies.size()]);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void emulator_start_copy(void* to, const void* from, size_t size, size_t zeros) {
    Core& core = *this_core;
    const uint64_t group = core.current->groups;
    const Copy copy = {to, from, size, zeros, group, __builtin_return_address(0), false};
    if (core.checking) observer->start_copy(core, copy);
    core.busy = 1;
    core.async.start_copy(copy);
    core.busy = 0;
    if (core.attention) core.attend(copy.site);
}

void emulator_commit_copies() { ++this_core->current->groups; }

void emulator_wait_copies(size_t groups_in_flight) {
    Core& core = *this_core;
    Thread& me = *core.current;
    size_t landed = 0;
    for (; landed < me.copies.size(); ++landed) {
        Copy& copy = me.copies[landed];
        if (copy.group + groups_in_flight >= me.groups) break;
        move(copy);
        if (core.checking) observer->land_copy(core, copy);
    }
    core.busy = 1;
    me.copies.erase(me.copies.begin(), me.copies.begin() + landed);
    core.busy = 0;
    if (core.attention) core.attend(__builtin_return_address(0));
}
}
