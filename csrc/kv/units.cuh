// Copies of bytes of any meaning, in units as wide as all addresses and sizes allow.
#pragma once

#include "common.cuh"

// The widest unit of 1, 2, 4, 8 or 16 bytes that divides all of these sizes and addresses: the
// lowest bit that is set in any of them.
template <typename... Numbers>
int widest_unit(Numbers... numbers) {
    uintptr_t all = (16 | ... | (uintptr_t)numbers);
    return (int)(all & -all);
}

// Call `run` with a value of the unsigned type that is `bytes` wide.
template <typename Run>
void with_unit(int bytes, Run run) {
    if (bytes == 16) run(uint4());
    if (bytes == 8) run(uint2());
    if (bytes == 4) run(uint32_t());
    if (bytes == 2) run(uint16_t());
    if (bytes == 1) run(uint8_t());
}
