"""RMSNorm by CUDA C++ kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from yaie.ops.cuda.launching import launch
from yaie.ops.plans import made

FILE = "norm/rms_norm.cu"


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, file: str | Path = FILE, name: str = "rms_norm"
) -> Tensor:
    """RMSNorm of each row of `[rows, size]`; `name` is a launcher of `file`."""
    out = made(torch.empty_like(x))
    launch(file, name, x.dtype, x, weight, out, *x.shape, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm of x + residual, and the sum."""
    out, total = made(torch.empty_like(x)), made(torch.empty_like(x))
    launch(FILE, "add_rms_norm", x.dtype, x, residual, weight, out, total, *x.shape, eps)
    return out, total
