"""Operators that treat each element alone."""

from torch import Tensor

from yaie.ops.checks import FLOATS, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda x: x.new_empty(x.shape[0], x.shape[1] // 2))
def silu_and_mul(x: Tensor, *, backend: str = AUTO) -> Tensor:
    """silu(gate) × up of `[rows, 2 × size]`; see `reference.elementwise.silu_and_mul`."""
    check_tensor("x", x, ("rows", "2 × size"), FLOATS, contiguous=True)
    if x.shape[1] % 2:
        raise ValueError(f"x must have an even number of columns, got {x.shape[1]}")
