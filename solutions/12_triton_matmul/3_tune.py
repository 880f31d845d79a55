"""Solution of exercise 12.3: Autotuning a kernel that adds to its output.

`column_sum_kernel` sums up columns: each program adds its tile's sums to the output with
`tl.atomic_add`. Let `triton.autotune` choose the tile. `tune` gives it four configurations, the
key, the output that must be reset before each trial, and the clock `do_bench`, and returns the
tuned kernel. `column_sum` allocates the output and launches with a grid that fits each
configuration.

Generated from tune, column_sum in yaie/course/lessons/ops/triton/tuned.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton


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
