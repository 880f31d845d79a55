"""Solution of exercise 11.3: RMSNorm, fused with the addition before it.

A layer's output is added to the residual, and the sum is normalized for the next layer. Write the
kernel that does both: it stores the sum as `total`, and total / sqrt(mean(total²) + eps) × weight
as `out`, and loads x and the residual once.

Generated from add_rms_norm_kernel in yaie/ops/triton/norm.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def add_rms_norm_kernel(
    x_ptr,  # [rows, size], contiguous
    residual_ptr,  # [rows, size], contiguous
    weight_ptr,  # [size]
    out_ptr,  # [rows, size], contiguous
    total_ptr,  # [rows, size], contiguous
    rows,
    size,
    eps,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """RMSNorm of x + residual, and the sum: it is in registers already, so no other read.

    total = x + residual, rounded to its dtype; out = total / sqrt(mean(total²) + eps) × weight,
    computed in float32. Program p computes the rows p, p + number of programs, and so on. BLOCK is
    a power of two of at least `size`; `num_stages=STAGES` is for `tl.range`.
    """
    offsets = tl.arange(0, BLOCK)
    inside = offsets < size
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0)
    for row in tl.range(first, rows, tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(row, tl.int64) * size
        x = tl.load(x_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        # Rounded here, so that what is normalized is what the next layer adds to.
        rounded = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + start + offsets, rounded, mask=inside)
        total = rounded.to(tl.float32)
        scale = tl.rsqrt(tl.sum(total * total) / size + eps)
        tl.store(out_ptr + start + offsets, total * scale * weight, mask=inside)
