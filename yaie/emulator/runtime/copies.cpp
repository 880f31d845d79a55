// Asynchronous copies (cp.async). A thread starts copies, closes groups of them, and waits until all
// but its newest groups have landed. The bytes move as late as that allows.
#include <string.h>

#include "core.h"
#include "observer.h"

using namespace emulator;

extern "C" {

void emulator_start_copy(void* to, const void* from, size_t size, size_t zeros) {
    Core& core = *this_core;
    Thread& me = *core.current;
    const Copy copy = {to, from, size, zeros, me.groups, __builtin_return_address(0)};
    if (core.checking) observer->start_copy(core, copy);
    core.busy = 1;
    me.copies.push_back(copy);
    core.busy = 0;
    if (core.attention) core.attend(copy.site);
}

void emulator_commit_copies() { ++this_core->current->groups; }

void emulator_wait_copies(size_t groups_in_flight) {
    Core& core = *this_core;
    Thread& me = *core.current;
    size_t landed = 0;
    for (; landed < me.copies.size(); ++landed) {
        const Copy& copy = me.copies[landed];
        if (copy.group + groups_in_flight >= me.groups) break;
        const size_t read = copy.size - copy.zeros;
        memcpy(copy.to, copy.from, read);
        memset(static_cast<char*>(copy.to) + read, 0, copy.zeros);
        if (core.checking) observer->land_copy(core, copy);
    }
    core.busy = 1;
    me.copies.erase(me.copies.begin(), me.copies.begin() + landed);
    core.busy = 0;
    if (core.attention) core.attend(__builtin_return_address(0));
}
}
