"""Exercise 13.4: Merge the splits of a context.

A whole kernel: program r loads the outputs and log-sum-exps that the splits have left for row r,
and stores the merged output and log-sum-exp. Splits beyond a short context have left -inf. Mask
dims beyond HEAD_DIM. Compute in float32, and cast the output at the store. The parts may have
more than 2³¹ elements: widen what indices are made of.

You have
- `parts_ptr`: float32 `[SPLITS, num_rows, HEAD_DIM]`, the output of each split, divided already
- `part_lse_ptr`: float32 `[SPLITS, num_rows]`, natural log-sum-exps; -inf where a split saw no
  key
- `out_ptr`, `lse_ptr`: `[num_rows, HEAD_DIM]` and float32 `[num_rows]`
- `SPLITS`, `HEAD_DIM`, `DIM`: constants; DIM is the next power of two from HEAD_DIM on, and
  SPLITS is one
- `LOWEST`: a finite number below any score
- `tl.exp(x)`, `tl.log(x)`, `tl.max(x)`, `tl.sum(x)`, `tl.sum(x, 0)`: of a block; the last one
  adds up its rows
- `out_ptr.dtype.element_ty`: the dtype behind a pointer, which `x.to(...)` takes
- `x.to(tl.int64)`: a number or a block in 64 bits

In a terminal: yaie check 13.4, yaie hint 13.4, yaie reset 13.4.
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
    pass  # Exercise 13.4: Merge the splits of a context
