// A launch: distributes its thread blocks over the cores, and keeps its errors and settings.
#pragma once

#include <string>

#include "core.h"
#include "failure.h"

namespace emulator {

struct Settings {
    Schedule schedule;
    double time_limit = 60;  // CPU seconds per core
    int num_cores = 0;       // 0: all that this process may use
    uint64_t most_blocks = 0;  // run only so many thread blocks of a launch; 0: all
};

extern Settings settings;

std::string base_name(const char* kernel);  // "fill" for "a::fill<float, 4>, 1"
void grid_failed(const Failure& failure);
void set_error(int error);
void print_text(const char* text);

}  // namespace emulator
