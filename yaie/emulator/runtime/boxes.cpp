// Boxes of tensors: TMA's part that has a value. When a copy lands is decided elsewhere.
#include "boxes.h"

#include <string.h>

#include <algorithm>

namespace emulator {

namespace {

// Calls visit(row, begin, end, where) for each row of the box. `begin` and `end` bound the bytes of
// the row that lie in the tensor, and `where` is the address of the row's first byte.
template <class Visit>
void each_row(const TensorBox& box, Visit visit) {
    const TensorMap& map = box.map;
    uint32_t rows = 1;
    for (int i = 1; i < map.rank; ++i) rows *= map.box[i];
    for (uint32_t row = 0; row < rows; ++row) {
        uint32_t left = row;
        bool inside = true;
        uint64_t where = map.address + (int64_t)box.at[0] * map.element;
        for (int i = 1; i < map.rank; ++i) {
            const int64_t at = box.at[i] + (int64_t)(left % map.box[i]);
            left /= map.box[i];
            inside &= at >= 0 && (uint64_t)at < map.sizes[i];
            where += at * (int64_t)map.strides[i - 1];
        }
        const int64_t width = map.box[0], from = std::clamp<int64_t>(-(int64_t)box.at[0], 0, width);
        const int64_t to = std::clamp<int64_t>((int64_t)map.sizes[0] - box.at[0], from, width);
        const size_t begin = from * map.element, end = inside ? to * map.element : begin;
        visit(row, begin, end, (char*)where);
    }
}

}  // namespace

size_t box_bytes(const TensorMap& map) {
    size_t bytes = map.element;
    for (int i = 0; i < map.rank; ++i) bytes *= map.box[i];
    return bytes;
}

std::vector<Span> box_spans(const TensorBox& box) {
    std::vector<Span> spans;
    each_row(box, [&](uint32_t, size_t begin, size_t end, char* where) {
        if (begin == end) return;
        if (!spans.empty() && (char*)spans.back().begin + spans.back().size == where + begin) {
            spans.back().size += end - begin;
        } else {
            spans.push_back({where + begin, end - begin});
        }
    });
    return spans;
}

void copy_box(const TensorBox& box) {
    const size_t width = (size_t)box.map.box[0] * box.map.element;
    each_row(box, [&](uint32_t row, size_t begin, size_t end, char* where) {
        for (size_t chunk = 0; chunk < width; chunk += 16) {
            const auto address = (uintptr_t)box.shared + row * width + chunk;
            char* place = (char*)swizzled(address, box.map.swizzle);
            const size_t from = std::clamp(begin, chunk, chunk + 16);
            const size_t to = std::clamp(end, from, chunk + 16);
            if (box.store) {
                memcpy(where + from, place + (from - chunk), to - from);
            } else {
                memset(place, box.map.fill, 16);
                memcpy(place + (from - chunk), where + from, to - from);
            }
        }
    });
}

}  // namespace emulator
