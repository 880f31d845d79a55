// A launch: its thread blocks over the cores, its errors, and what Python may set.
#pragma once

#include "core.h"
#include "failure.h"

namespace emulator {

struct Settings {
    Schedule schedule;
    double time_limit = 60;  // seconds
    int num_cores = 0;       // 0: as many as the machine lends
};

extern Settings settings;

void grid_failed(const Failure& failure);
void set_error(int error);
void print_text(const char* text);

}  // namespace emulator
