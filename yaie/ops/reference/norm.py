"""Sums, softmax and normalization of rows, in plain PyTorch.

Each computes in float32 (float64 if given it) and rounds once, when it returns to the dtype of its
input. The kernels do the same, so they differ from these only by the order of their additions.
"""

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) × weight over the last axis of `[..., size]`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.nn.functional.rms_norm(wide, weight.shape, weight.to(wide.dtype), eps).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum itself, which the next layer adds to.

    The sum is rounded to the dtype of x before it is normalized, so both results agree.
    """
    total = x + residual
    return rms_norm(total, weight, eps), total
