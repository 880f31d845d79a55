"""Row operators: sum, softmax and RMSNorm, each over the last axis."""

import torch
from torch import Tensor

from yaie.ops.checks import FLOATS, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda x, weight, eps: torch.empty_like(x))
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6, *, backend: str = AUTO) -> Tensor:
    """RMSNorm of each row; see `reference.norm.rms_norm`."""
    check_tensor("x", x, ("rows", "size"), FLOATS, contiguous=True)
    check_tensor("weight", weight, (x.shape[1],), (x.dtype,), like=x, contiguous=True)


@operator(lambda x, residual, weight, eps: (torch.empty_like(x), torch.empty_like(x)))
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, backend: str = AUTO
) -> tuple[Tensor, Tensor]:
    """RMSNorm of x + residual, and the sum; see `reference.norm.add_rms_norm`."""
    check_tensor("x", x, ("rows", "size"), FLOATS, contiguous=True)
    check_tensor("residual", residual, tuple(x.shape), (x.dtype,), like=x, contiguous=True)
    check_tensor("weight", weight, (x.shape[1],), (x.dtype,), like=x, contiguous=True)
