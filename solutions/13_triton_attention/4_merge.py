"""Solution of exercise 13.4: Merge the splits of a context.

A whole kernel: program r loads the outputs and log-sum-exps that the splits have left for row r,
and stores the merged output and log-sum-exp. Splits beyond a short context have left -inf. Mask
dims beyond HEAD_DIM. Compute in float32, and cast the output at the store. The parts may have
more than 2³¹ elements: widen what indices are made of.

Generated from merge_kernel in yaie/ops/triton/paged.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from yaie.ops.triton.online import LOWEST


@triton.jit(do_not_specialize=["num_rows"])
def merge_kernel(
    parts_ptr,  # [SPLITS, rows, HEAD_DIM] float32
    part_lse_ptr,  # [SPLITS, rows]
    out_ptr,  # [rows, HEAD_DIM]
    lse_ptr,  # [rows]
    num_rows,
    SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    """Merge the partial results of one row: their average, weighted by exp(log-sum-exp).

    Program r merges row r. Split s holds the output `parts[s, r]`, divided by its own sum already,
    and the natural log-sum-exp `part_lse[s, r]`; -inf if it saw nothing, and zeros then. If no
    split saw anything, the row is zeros and its log-sum-exp -inf. SPLITS and DIM are powers of
    two; DIM is HEAD_DIM or more. The dtype behind `out_ptr` may be narrower than float32.
    """
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    lse = tl.load(part_lse_ptr + splits * num_rows.to(tl.int64) + row)
    maximum = tl.maximum(tl.max(lse), LOWEST)
    weights = tl.exp(lse - maximum)
    total = tl.sum(weights)
    source = (splits * num_rows.to(tl.int64) + row)[:, None] * HEAD_DIM + dims[None, :]
    parts = tl.load(parts_ptr + source, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty), dims < HEAD_DIM)
    tl.store(lse_ptr + row, maximum + tl.log(total))
