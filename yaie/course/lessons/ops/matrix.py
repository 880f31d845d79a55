"""Operators on whole matrices: transpose and product."""

import torch

from yaie.ops.checks import FLOATS, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda x: x.new_empty(x.shape[1], x.shape[0]))
def transpose(x: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """`[rows, columns]` -> `[columns, rows]`, written out in its new order."""
    check_tensor("x", x, ("rows", "columns"), FLOATS, contiguous=True)


@operator(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
def matmul(a: torch.Tensor, b: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """`[m, k]` × `[k, n]` -> `[m, n]`, in the dtype of a, summed in float32 or wider."""
    check_tensor("a", a, ("m", "k"), FLOATS, contiguous=True)
    check_tensor("b", b, (a.shape[1], "n"), (a.dtype,), like=a, contiguous=True)
