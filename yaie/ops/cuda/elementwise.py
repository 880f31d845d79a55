"""Elementwise operators by CUDA C++ kernels."""

from __future__ import annotations

from pathlib import Path

import torch

from yaie.ops.cuda.launching import launch


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) × up of `[rows, 2 × size]`."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, size)
    launch("activation/silu_and_mul.cu", "silu_and_mul", x.dtype, x, out, rows, size)
    return out


def silu_and_mul_simple(
    x: torch.Tensor, file: str | Path = "activation/silu_and_mul_simple.cu"
) -> torch.Tensor:
    """The same by the first rung, or by a file like it."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, size)
    launch(file, "silu_and_mul_simple", x.dtype, x, out, rows, size)
    return out
