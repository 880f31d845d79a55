"""RMSNorm by CUDA C++ kernels."""

from __future__ import annotations

from pathlib import Path

import torch

from yaie.ops.cuda.launching import launch
from yaie.ops.plans import made

FILE = "norm/rms_norm.cu"


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, file: str | Path = FILE,
    name: str = "rms_norm",
) -> torch.Tensor:  # fmt: skip
    """RMSNorm of each row of `[rows, size]`; `name` is a launcher of `file`."""
    out = made(torch.empty_like(x))
    launch(file, name, x.dtype, x, weight, out, *x.shape, eps)
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum."""
    out, total = made(torch.empty_like(x)), made(torch.empty_like(x))
    launch(FILE, "add_rms_norm", x.dtype, x, residual, weight, out, total, *x.shape, eps)
    return out, total
