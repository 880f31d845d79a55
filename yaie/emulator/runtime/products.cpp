// Products of matrices: wgmma's part that has a value. When one lands is decided elsewhere.
#include "products.h"

#include <string.h>

#include <algorithm>
#include <memory>

namespace emulator {

namespace {

constexpr int rows = 64, deep = 16, most_columns = 256;

// A matrix in shared memory as its descriptor has it, of elements (i, k): i counts rows of A or
// columns of B. Parts are 8 rows × `span` bytes, in which the swizzle repeats. The descriptor alone
// decides, so that a wrong one names wrong elements, as on the chip.
struct Matrix {
    uint32_t first, leading, stride, span, offset;
    int swizzle;  // log2 of the chunks of a span
    bool mn;      // a row of shared memory has consecutive i, not k

    Matrix(uint64_t descriptor, bool mn) : mn(mn) {
        first = (descriptor & 0x3fff) << 4;
        leading = (descriptor >> 16 & 0x3fff) << 4;
        stride = (descriptor >> 32 & 0x3fff) << 4;
        offset = descriptor >> 49 & 7;
        swizzle = (int)(4 - (descriptor >> 62)) % 4;
        span = 16u << swizzle;
    }
    // The address of element (i, k).
    uint32_t address(int i, int k) const {
        const int along = mn ? i : k, across = mn ? k : i, width = (int)span / 2;
        // Without a swizzle, MN-major parts follow each other along i by the stride.
        const bool exchanged = mn && swizzle == 0;
        const uint32_t next = exchanged ? stride : leading, below = exchanged ? leading : stride;
        uint32_t place = first + across % 8 * span + across / 8 * below;
        place += along / width * next + along % width * 2;
        return (uint32_t)swizzled(place, swizzle);
    }
    // Calls visit for each 16-byte chunk of `count` rows or columns.
    template <class Visit>
    void each_chunk(int count, Visit visit) const {
        const int along = mn ? count : deep, across = mn ? deep : count;
        for (int j = 0; j < across; ++j) {
            for (int i = 0; i < along; i += 8) visit(mn ? address(i, j) : address(j, i), i, j);
        }
    }
};

const float* half_values() {
    static const std::vector<float> table = [] {
        std::vector<float> values(65536);
        for (uint32_t bits = 0; bits < 65536; ++bits) {
            const uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31;
            uint32_t held = sign | (bits & 0x3ff) << 13;
            if (exponent == 31) held |= 0x7f800000;
            else if (exponent) held |= (exponent + 112) << 23;
            memcpy(&values[bits], &held, 4);
            if (!exponent) values[bits] = (sign ? -1.0f : 1.0f) * (float)(bits & 0x3ff) * 0x1p-24f;
        }
        return values;
    }();
    return table.data();
}

float value(uint16_t bits, bool bfloat16, bool negate) {
    float x;
    if (bfloat16) {
        const uint32_t held = (uint32_t)bits << 16;
        memcpy(&x, &held, 4);
    } else {
        x = half_values()[bits];
    }
    return negate ? -x : x;
}

// Where thread `t` of the warp group has its accumulator `j`: rows of 16 for each warp, and in each
// 8 columns two neighbors of two rows for each lane.
int row_of(int t, int j) { return t / 32 * 16 + t % 32 / 4 + (j & 2 ? 8 : 0); }
int column_of(int t, int j) { return j / 4 * 8 + t % 4 * 2 + j % 2; }

struct Tiles {
    float a[rows][deep], b[deep][most_columns], c[rows][most_columns];
};
typedef float Vector __attribute__((vector_size(16), aligned(4)));

}  // namespace

const char* product_problem(const MatrixProduct& product, size_t shared_bytes) {
    const char* problem = nullptr;
    auto check = [&](const Matrix& matrix, int count) {
        matrix.each_chunk(count, [&](uint32_t address, int, int) {
            if (address + 16 > shared_bytes) {
                problem = "reaches past the end of the launch's dynamic shared memory";
            }
        });
        if (matrix.offset) problem = "has a base offset, which is not emulated: align the tile";
    };
    check(Matrix(product.b, product.b_mn), product.n);
    if (!product.a_in_registers) check(Matrix(product.a, product.a_mn), rows);
    return problem;
}

std::vector<Span> product_spans(const MatrixProduct& product, const char* shared) {
    std::vector<Span> spans;
    auto add = [&](uint32_t address, int, int) { spans.push_back({shared + address, 16}); };
    if (!product.a_in_registers) Matrix(product.a, product.a_mn).each_chunk(rows, add);
    Matrix(product.b, product.b_mn).each_chunk(product.n, add);
    std::sort(spans.begin(), spans.end(), [](Span a, Span b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (const Span span : spans) {
        const auto* end = kept ? (const char*)spans[kept - 1].begin + spans[kept - 1].size : nullptr;
        if (end == span.begin) spans[kept - 1].size += span.size;
        else if (!end || end < span.begin) spans[kept++] = span;
    }
    spans.resize(kept);
    return spans;
}

void compute_product(const ProductPart* const (&parts)[warp_group]) {
    const MatrixProduct& product = parts[0]->product;
    const char* shared = parts[0]->shared;
    static thread_local auto tiles = std::make_unique<Tiles>();
    auto& [a, b, c] = *tiles;
    auto load = [&](uint64_t descriptor, bool mn, bool negate, int count, float* to, int by_i,
                    int by_k) {
        Matrix(descriptor, mn).each_chunk(count, [&](uint32_t address, int along, int across) {
            uint16_t bits[8];
            memcpy(bits, shared + address, 16);
            for (int e = 0; e < 8; ++e) {
                const int i = mn ? along + e : across, k = mn ? across : along + e;
                to[i * by_i + k * by_k] = value(bits[e], product.bfloat16, negate);
            }
        });
    };
    if (product.a_in_registers) {
        for (int t = 0; t < warp_group; ++t) {
            for (int e = 0; e < 8; ++e) {  // two per register, rows and columns as mma.sync's
                const ProductPart& own = *parts[t];
                const uint32_t pair = own.late[e / 2] ? *own.a[e / 2] : own.values[e / 2];
                const uint16_t bits = (uint16_t)(pair >> e % 2 * 16);
                const int row = t / 32 * 16 + t % 32 / 4 + (e & 2 ? 8 : 0);
                const int k = t % 4 * 2 + e % 2 + (e & 4 ? 8 : 0);
                a[row][k] = value(bits, product.bfloat16, product.negate_a);
            }
        }
    } else {
        load(product.a, product.a_mn, product.negate_a, rows, &a[0][0], deep, 1);
    }
    load(product.b, product.b_mn, product.negate_b, product.n, &b[0][0], 1, most_columns);

    const int count = product.n / 2;
    auto place = [&](int t, int j) -> float& {
        return parts[t]->in_a_row ? parts[t]->places[0][j] : *parts[t]->places[j];
    };
    for (int t = 0; t < warp_group && product.add; ++t) {
        for (int j = 0; j < count; ++j) c[row_of(t, j)][column_of(t, j)] = place(t, j);
    }
    constexpr int wide = 2;  // vectors of columns per step: n is a multiple of 8
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < product.n; column += 4 * wide) {
            Vector sums[wide] = {};
            auto* out = reinterpret_cast<Vector*>(&c[row][column]);
            for (int i = 0; i < wide && product.add; ++i) sums[i] = out[i];
            for (int k = 0; k < deep; ++k) {
                const auto* in = reinterpret_cast<const Vector*>(&b[k][column]);
                for (int i = 0; i < wide; ++i) sums[i] += a[row][k] * in[i];
            }
            for (int i = 0; i < wide; ++i) out[i] = sums[i];
        }
    }
    for (int t = 0; t < warp_group; ++t) {
        for (int j = 0; j < count; ++j) place(t, j) = c[row_of(t, j)][column_of(t, j)];
    }
}

}  // namespace emulator
