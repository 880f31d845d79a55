"""Sums, softmax and normalization of rows, in plain PyTorch.

Each computes in float32 (float64 if given it) and rounds once, when it returns to the dtype of its
input. The kernels do the same, so they differ from these only by the order of their additions.
"""

from __future__ import annotations

import torch

from yaie.ops.reference.precision import wide_dtype


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row of `[rows, columns]`: `[rows]`, float32 (float64 if given it)."""
    return x.to(wide_dtype(x)).sum(dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of `[rows, columns]`; a row of -inf alone gives zeros, not NaN."""
    wide = x.to(wide_dtype(x))
    highest = wide.amax(dim=-1, keepdim=True) if x.shape[-1] else wide.sum(-1, keepdim=True)
    weights = torch.exp(wide - highest.masked_fill(highest == -torch.inf, 0.0))
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.masked_fill(total == 0.0, 1.0)).to(x.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) × weight over the last axis of `[..., size]`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    wide = x.to(wide_dtype(x))
    return torch.nn.functional.rms_norm(wide, weight.shape, weight.to(wide.dtype), eps).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum itself, which the next layer adds to.

    The sum is rounded to the dtype of x before it is normalized, so both results agree.
    """
    total = x + residual
    return rms_norm(total, weight, eps), total
