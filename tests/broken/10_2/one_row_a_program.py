"""Takes one row for each program, however few programs there are."""

import triton
import triton.language as tl

EXPECT = "Program p goes on with row"


@triton.jit(do_not_specialize=["rows"])
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    for row in range(tl.program_id(0), tl.program_id(0) + 1):
        start = row * columns
        x = tl.load(x_ptr + start + offsets, mask=inside, other=float("-inf")).to(tl.float32)
        highest = tl.max(x)
        highest = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp(x - highest)
        total = tl.sum(weights)
        total = tl.where(total == 0.0, 1.0, total)
        tl.store(out_ptr + start + offsets, weights / total, mask=inside)
