"""Sums of two tensors, element by element."""

import torch

from yaie.ops.checks import FLOATS, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda x, y: torch.empty_like(x))
def add(x: torch.Tensor, y: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """x + y, both of one shape, of any rank."""
    _check_pair(x, y)


@operator(lambda x, y: torch.empty_like(x))
def add_relu(x: torch.Tensor, y: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """max(x + y, 0), both of one shape, of any rank."""
    _check_pair(x, y)


def _check_pair(x: torch.Tensor, y: torch.Tensor) -> None:
    check_tensor("x", x, tuple(x.shape), FLOATS, contiguous=True)
    check_tensor("y", y, tuple(x.shape), (x.dtype,), like=x, contiguous=True)
