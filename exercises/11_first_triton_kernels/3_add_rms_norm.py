"""Exercise 11.3: RMSNorm, fused with the addition before it.

A layer's output is added to the residual, and the sum is normalized for the next layer. Write the
kernel that does both: it stores the sum as `total`, and total / sqrt(mean(total²) + eps) × weight
as `out`, and loads x and the residual once.

You have
- `x_ptr`, `residual_ptr`, `out_ptr`, `total_ptr`: `[rows, size]`, one row after the other
- `weight_ptr`: `[size]`
- `eps`, `BLOCK`, `STAGES`: a float; a power of two, at least `size`; what `num_stages=` of the
  loop is to be
- `tl.rsqrt(v)`, `tl.sum(x)`: 1 / sqrt(v); the sum of a block
- `total_ptr.dtype.element_ty`: the dtype behind a pointer, which `x.to(...)` takes
- `tl.range`, `tl.load`, `tl.store`, `tl.cast`: as in exercise 11.2

In a terminal: yaie check 11.3, yaie hint 11.3, yaie reset 11.3.
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
    pass  # Exercise 11.3: RMSNorm, fused with the addition before it
