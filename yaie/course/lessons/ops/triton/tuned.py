"""Sums of columns by a kernel that adds to its output, tuned by `triton.autotune`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def column_sum_kernel(
    x_ptr,  # [rows, columns]
    out_ptr,  # [columns], float32
    rows,
    columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Each program adds the column sums of a tile of `[BLOCK_M, BLOCK_N]` to out."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    starts = m[:, None].to(tl.int64) * columns  # x may have more than 2³¹ elements
    tile = tl.load(x_ptr + starts + n[None, :], mask=inside, other=0.0)
    tl.atomic_add(out_ptr + n, tl.sum(tile.to(tl.float32), axis=0), mask=n < columns)


def tune(kernel: Any, do_bench: Callable[..., list[float]] | None = None) -> Any:
    """`column_sum_kernel`, its configuration chosen by `triton.autotune`.

    The candidates are the tiles of 16 or 64 rows by 32 or 128 columns, with 4 warps each. They are
    timed again when the number of columns changes, and not when only the number of rows does. Each
    trial adds to the output, so the output is set to zero before each.

    Args:
        kernel: to be tuned; its parameters are those of `column_sum_kernel`.
        do_bench: (call, quantiles=) -> times of a call at these quantiles; None for Triton's clock,
            which needs a GPU.
    """
    tiles = [(m, n) for m in (16, 64) for n in (32, 128)]
    return triton.autotune(
        configs=[triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=4) for m, n in tiles],
        key=["columns"],
        reset_to_zero=["out_ptr"],
        do_bench=do_bench,
    )(kernel)


def column_sum(x: torch.Tensor, kernel: Any) -> torch.Tensor:
    """The sums of the columns of `[rows, columns]`, float32, by a tuned kernel.

    The grid depends on the configuration, so it is a function of the constants: `meta["BLOCK_M"]`.
    """
    rows, columns = x.shape
    out = torch.zeros(columns, device=x.device)

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return triton.cdiv(rows, meta["BLOCK_M"]), triton.cdiv(columns, meta["BLOCK_N"])

    kernel[grid](x, out, rows, columns)
    return out
