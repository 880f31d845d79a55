// A launch: its thread blocks over the cores, its errors, and what Python may set.
#pragma once

#include <string>

#include "core.h"
#include "failure.h"

namespace emulator {

struct Settings {
    Schedule schedule;
    double time_limit = 60;  // seconds that a core computes
    int num_cores = 0;       // 0: as many as the machine lends
    uint64_t most_blocks = 0;  // of a launch that run, the first in the order; 0: all
};

extern Settings settings;

std::string base_name(const char* kernel);  // of "a::fill<float, 4>, 1", "fill"
void grid_failed(const Failure& failure);
void set_error(int error);
void print_text(const char* text);

}  // namespace emulator
