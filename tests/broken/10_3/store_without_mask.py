"""Stores the result in all lanes."""

import triton
import triton.language as tl

EXPECT = "The lanes beyond the row's end store too"


@triton.jit(do_not_specialize=["rows"])
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    rows,
    size,
    eps,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < size
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row * size
        x = tl.load(x_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        total = x + residual
        tl.store(total_ptr + start + offsets, total, mask=inside)
        scale = tl.rsqrt(tl.sum(total * total) / size + eps)
        tl.store(out_ptr + start + offsets, total * scale * weight, mask=offsets < BLOCK)
