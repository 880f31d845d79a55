"""Operators on whole matrices by CUDA C++ kernels."""

from __future__ import annotations

import torch

from yaie.backends.cuda.launching import launch
from yaie.backends.registry import Unsupported

MOST_ROWS = 65_535 * 32  # a grid has at most 65,535 thread blocks from top to bottom


def transpose(x: torch.Tensor) -> torch.Tensor:
    """`[rows, columns]` -> `[columns, rows]`, through tiles in shared memory."""
    rows, columns = x.shape
    if rows > MOST_ROWS:
        raise Unsupported(f"transpose takes up to {MOST_ROWS} rows, got {rows}")
    out = x.new_empty(columns, rows)
    launch("transpose/transpose.cu", "transpose", x.dtype, x, out, rows, columns)
    return out
