// The functions that code compiled with -fsanitize=float-cast-overflow,shift-exponent,bounds calls before
// an operation whose result C++ does not define. They replace the sanitizer's own library.
#include <stdio.h>
#include <string.h>

#include "checker.h"

namespace emulator {
namespace {

struct Type {
    uint16_t kind;  // 0: an integer, 1: a floating-point number
    uint16_t info;  // integers: twice the logarithm of the bits, plus 1 if signed; else the bits
    char name[1];
};
struct Operation {
    struct {
        const char* file;
        uint32_t line, column;
    } place;
    // A conversion's source and target, a shift's operands, or an array and its index.
    const Type *left, *right;
};

double floating(const Type& type, uintptr_t value) {
    double wide;
    float narrow;
    memcpy(&wide, &value, sizeof(wide));
    memcpy(&narrow, &value, sizeof(narrow));
    return type.info == 32 ? narrow : wide;
}

long long integer(const Type& type, uintptr_t value) {
    const int unused = 64 - (1 << (type.info >> 1));
    const uint64_t high = (uint64_t)value << unused;
    return type.info & 1 ? (long long)high >> unused : (long long)(high >> unused);
}

}  // namespace

void Checker::undefined(Core& core, Kind kind, const void* site, const char* text) {
    core.busy = 1;
    const Failure finding = describe(core, kind, site).says(text);
    if (kind == Kind::out_of_bounds) refuse(core, finding);  // which would hit another variable
    add(finding);
    core.busy = 0;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void __ubsan_handle_float_cast_overflow(const Operation* at, uintptr_t value) {
    Core* core = this_core;
    if (!core || !core->checking || !core->current || at->left->info > 64) return;
    char text[128];
    snprintf(text, sizeof(text), "%.7g to %s", floating(*at->left, value), at->right->name);
    checker.undefined(*core, Kind::conversion, __builtin_return_address(0), text);
}

void __ubsan_handle_out_of_bounds(const Operation* at, uintptr_t index) {
    Core* core = this_core;
    if (!core || !core->checking || !core->current) return;
    char text[256];
    snprintf(text, sizeof(text), "%lld %.200s", integer(*at->right, index), at->left->name);
    checker.undefined(*core, Kind::out_of_bounds, __builtin_return_address(0), text);
}

void __ubsan_handle_shift_out_of_bounds(const Operation* at, uintptr_t, uintptr_t by) {
    Core* core = this_core;
    if (!core || !core->checking || !core->current) return;
    char text[128];
    snprintf(text, sizeof(text), "%s of %d bits by %lld", at->left->name,
             1 << (at->left->info >> 1), integer(*at->right, by));
    checker.undefined(*core, Kind::shift, __builtin_return_address(0), text);
}
}
