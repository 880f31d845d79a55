// Who is told of events in checked mode. The checker is a separate library, built and loaded only on
// request; without it there is no observer.
#pragma once

#include "core.h"

namespace emulator {

struct Allocation;
struct Failure;

class Observer {
  public:
    Code code;  // its own, which a signal must not abandon
#define EVENT(result, name, parameters) virtual result name parameters = 0;
#include "events.h"
#undef EVENT
};

extern Observer* observer;  // null: nothing is checked

}  // namespace emulator
