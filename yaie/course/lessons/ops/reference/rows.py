"""Sums and softmax of rows, in plain PyTorch: in float32 (float64 if given it), rounded once."""

import torch


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row of `[rows, columns]`: `[rows]`, float32 (float64 if given it)."""
    return x.to(torch.promote_types(x.dtype, torch.float32)).sum(dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of `[rows, columns]`; a row of -inf alone gives zeros, not NaN."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    highest = wide.amax(dim=-1, keepdim=True) if x.shape[-1] else wide.sum(-1, keepdim=True)
    weights = torch.exp(wide - highest.masked_fill(highest == -torch.inf, 0.0))
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.masked_fill(total == 0.0, 1.0)).to(x.dtype)
