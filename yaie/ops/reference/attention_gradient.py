"""Attention of one sequence and its gradient, as the operators have them, in plain PyTorch."""

from __future__ import annotations

import torch

from yaie.ops.reference.attention import attention as _attention
from yaie.ops.reference.flash import flash_backward


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`reference.attention.attention`, its results contiguous, as those of the kernels are."""
    out, lse = _attention(q, k, v, causal, scale)
    return out.contiguous(), lse.contiguous()


def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`yaie.ops.reference.flash.flash_backward` in tiles of 64, its results in the dtype of q."""
    scale = q.shape[2] ** -0.5 if scale is None else scale
    grads = flash_backward(grad_out, q, k, v, lse, delta, causal, scale, 64, 64)
    return tuple(grad.to(q.dtype) for grad in grads)
