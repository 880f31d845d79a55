"""The gradient of attention of one sequence, as the operator has it, in plain PyTorch."""

from __future__ import annotations

import torch

from yaie.course.lessons.ops.reference.flash import flash_backward
from yaie.ops.reference.attention import contiguous_attention as attention  # noqa: F401  # the forward pass


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
    """`flash_backward` in tiles of 64, its results in the dtype of q."""
    scale = q.shape[2] ** -0.5 if scale is None else scale
    grads = flash_backward(grad_out, q, k, v, lse, delta, causal, scale, 64, 64)
    return tuple(grad.to(q.dtype) for grad in grads)
