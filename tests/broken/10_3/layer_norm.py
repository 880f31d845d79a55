"""Takes the mean off first."""

import triton
import triton.language as tl

EXPECT = "that is layer normalization"


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
        mean = tl.sum(total) / size
        total = tl.where(inside, total - mean, 0.0)
        scale = tl.rsqrt(tl.sum(total * total) / size + eps)
        tl.store(out_ptr + start + offsets, total * scale * weight, mask=inside)
