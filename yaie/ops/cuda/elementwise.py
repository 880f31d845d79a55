"""Elementwise operators by CUDA C++ kernels."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from yaie.ops.cuda.launching import launch
from yaie.ops.plans import made


def silu_and_mul(
    x: Tensor, file: str | Path = "activation/silu_and_mul.cu", name: str = "silu_and_mul"
) -> Tensor:
    """silu(gate) × up of `[rows, 2 × size]`; `name` is a launcher of `file`."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = made(x.new_empty(rows, size))
    launch(file, name, x.dtype, x, out, rows, size)
    return out
