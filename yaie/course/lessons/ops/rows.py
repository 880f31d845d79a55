"""The sum and the softmax of each row."""

import torch

from yaie.ops.checks import FLOATS, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO

_WIDE = {torch.float64: torch.float64}  # the dtype of sums; all else is summed in float32


@operator(lambda x: x.new_empty(x.shape[0], dtype=_WIDE.get(x.dtype, torch.float32)))
def row_sum(x: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """The sum of each row; see `reference.norm.row_sum`."""
    check_tensor("x", x, ("rows", "columns"), FLOATS, contiguous=True)


@operator(torch.empty_like)
def softmax(x: torch.Tensor, *, backend: str = AUTO) -> torch.Tensor:
    """Softmax of each row; see `reference.norm.softmax`."""
    check_tensor("x", x, ("rows", "columns"), FLOATS, contiguous=True)
