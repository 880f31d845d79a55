"""Operators on each element by itself, in plain PyTorch.

Each computes in float32 (float64 if given it) and rounds once, when it returns to the dtype of its
input. The kernels do the same, so they differ from these only by the order of their additions.
"""

import torch


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) × up of `[..., 2 × size]`, gate in the first half and up in the second.

    Returns `[..., size]`. silu(g) is g / (1 + exp(-g)).
    """
    gate, up = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)
