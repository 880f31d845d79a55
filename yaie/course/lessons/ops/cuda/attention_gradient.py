"""The gradients of attention by CUDA C++ kernels."""

import torch

from yaie.ops.cuda.flash import MOST_HEAD_DIM
from yaie.ops.cuda.launching import launch
from yaie.ops.registry import Unsupported

MOST_HEADS = 65_535  # thread blocks that a grid has from top to bottom


def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v; see `attention_gradient.attention_backward`."""
    (num_q, heads, head_dim), (num_k, kv_heads, _) = q.shape, k.shape
    if head_dim > MOST_HEAD_DIM:
        raise Unsupported(f"head_dim may be up to {MOST_HEAD_DIM}, got {head_dim}")
    if heads > MOST_HEADS:
        raise Unsupported(f"there may be up to {MOST_HEADS} heads, got {heads}")
    inputs = [x.contiguous() for x in (grad_out, q, k, v, lse, delta)]
    grads = [x.new_empty(x.shape) for x in (q, k, v)]
    launch(
        *("flash/backward.cu", "attention_backward", q.dtype, *inputs, *grads),
        *(num_q, num_k, heads, kv_heads, head_dim),
        *(head_dim**-0.5 if scale is None else scale, int(causal)),
    )
    return tuple(grads)
