"""Rotary position embedding."""

import torch
from torch import Tensor

from yaie.ops.checks import FLOATS, check_range, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda x, positions, cos, sin: x.new_empty(x.shape))
def rotary(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, *, backend: str = AUTO
) -> Tensor:
    """Rotate queries or keys by their positions; see `reference.rotary.apply_rotary`.

    Args:
        x: `[tokens, heads, head_dim]`, head_dim even.
        positions: int64 `[tokens]`, each a row of the tables.
        cos, sin: float32 `[max_positions, head_dim / 2]`.
    """
    check_tensor("x", x, ("tokens", "heads", "head_dim"), FLOATS)
    check_tensor("positions", positions, (x.shape[0],), (torch.int64,), like=x, contiguous=True)
    if x.shape[2] % 2:
        raise ValueError(f"x must have an even head_dim, got {x.shape[2]}")
    shape = ("max_positions", x.shape[2] // 2)
    check_tensor("cos", cos, shape, (torch.float32,), like=x, contiguous=True)
    check_tensor("sin", sin, tuple(cos.shape), (torch.float32,), like=x, contiguous=True)
    check_range("positions", positions, cos.shape[0])
