"""The natural log-sum-exps are taken for logarithms to base 2."""

import triton
import triton.language as tl

from yaie.ops.triton.online import LOWEST

EXPECT = "powers of 2"


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
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    lse = tl.load(part_lse_ptr + splits * num_rows.to(tl.int64) + row)
    maximum = tl.maximum(tl.max(lse), LOWEST)
    weights = tl.exp2(lse - maximum)
    total = tl.sum(weights)
    source = (splits * num_rows.to(tl.int64) + row)[:, None] * HEAD_DIM + dims[None, :]
    parts = tl.load(parts_ptr + source, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty), dims < HEAD_DIM)
    tl.store(lse_ptr + row, maximum + tl.log(total))
