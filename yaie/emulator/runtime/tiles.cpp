// With group = lane / 4 and member = lane % 4, a lane holds elements of rows `group` and `group` + 8
// of A, of column `group` of B, and of columns 2 × member and 2 × member + 1 of C, as the PTX ISA
// draws it. Products are exact, and a sum is rounded once.
#include "tiles.h"

#include "../include/emulator/formats.h"

namespace emulator {
namespace {

constexpr int tile_rows = 16, tile_columns = 8, most_deep = 32;
typedef double Two __attribute__((vector_size(16)));

int per_register(Element kind) {
    switch (kind) {
        case Element::f16: case Element::bf16: return 2;
        case Element::tf32: case Element::f32: case Element::s32: return 1;
        default: return 4;
    }
}

double element_of(Element kind, uint32_t held) {
    switch (kind) {
        case Element::f16: return HalfFormat::decode((unsigned short)held);
        case Element::bf16: return BrainFormat::decode((unsigned short)held);
        case Element::tf32: return bits_float(held & ~0x1fffu);  // the last 13 bits do not count
        case Element::f32: return bits_float(held);
        case Element::s32: return (int32_t)held;
        case Element::s8: return (int8_t)held;
        case Element::u8: return (uint8_t)held;
        case Element::e4m3: return E4M3::decode((unsigned char)held);
        case Element::e5m2: return E5M2::decode((unsigned char)held);
    }
    return 0;
}

uint32_t encoded(Element kind, double value) {
    if (kind == Element::f16) return HalfFormat::encode(to_odd(value));
    if (kind == Element::s32) return (uint32_t)(int32_t)value;
    return float_bits((float)value);
}

}  // namespace

void multiply_tiles(LaneTile* const (&lanes)[32]) {
    LaneTile nothing;
    memset(&nothing, 0xff, sizeof(nothing));
    const LaneTile* given[32];
    for (int lane = 0; lane < 32; ++lane) {
        given[lane] = lanes[lane] ? lanes[lane] : &nothing;
        if (lanes[lane]) nothing.product = lanes[lane]->product;
    }
    const TileProduct product = nothing.product;
    const int packed = per_register(product.a), deep = 4 * product.of_b * packed;

    // Products are added lane by lane of a group, whose lanes divide the columns of A among them.
    double a[tile_rows][most_deep];
    Two b[most_deep][tile_columns / 2];
    for (int lane = 0; lane < 32; ++lane) {
        const int group = lane / 4;
        int at = lane % 4 * product.of_b * packed;
        for (int k = 0; k < product.of_b; ++k) {
            for (int e = 0; e < packed; ++e, ++at) {
                const int shift = 32 / packed * e;
                const uint32_t column = given[lane]->b[k] >> shift;
                b[at][group / 2][group % 2] = element_of(product.b, column);
                for (int i = 0; i < 2; ++i) {
                    const uint32_t row = given[lane]->a[2 * k + i] >> shift;
                    a[group + 8 * i][at] = element_of(product.a, row);
                }
            }
        }
    }
    Two sums[tile_rows][tile_columns / 2] = {};
    for (int row = 0; row < tile_rows; ++row) {
        for (int at = 0; at < deep; ++at) {
            const Two factor = {a[row][at], a[row][at]};
            for (int i = 0; i < tile_columns / 2; ++i) sums[row][i] += factor * b[at][i];
        }
    }
    const int each = per_register(product.c), bits = 32 / each;
    for (int lane = 0; lane < 32; ++lane) {
        if (!lanes[lane]) continue;
        LaneTile& own = *lanes[lane];
        memset(own.d, 0, sizeof(own.d));
        for (int i = 0; i < 4; ++i) {
            const int shift = bits * (i % each) % 32;
            const double held = element_of(product.c, own.c[i / each] >> shift);
            const double sum = held + sums[lane / 4 + i / 2 * 8][lane % 4][i % 2];
            own.d[i / each] |= encoded(product.c, sum) << shift;
        }
    }
}

}  // namespace emulator
