"""Attention that can be differentiated: the operator's forward, and an operator for its gradients.

`torch.ops.yaie.attention` is for inference and refuses a backward pass. Here the two are put
together: nothing of the size queries × keys is kept between them, only the log-sum-exp of each
row, from which the backward pass computes every weight again.
"""

from functools import partial

import torch

from yaie.course.lessons.ops.attention import attention_forward
from yaie.course.lessons.ops.reference.flash import FlashAttention
from yaie.ops.checks import FLOATS, check_heads, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    *,
    backend: str = AUTO,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sequence, with gradients: `loss(flash_attention(q, k, v)[0]).backward()`.

    Args:
        q, k, v, causal, scale: see `reference.attention.attention`.
        backend: of both passes; see `yaie.ops.registry`.

    Returns:
        Output, as q, and natural log-sum-exp, float32 `[query tokens, heads]`. Both have gradients,
        but no second derivatives.
    """
    options = {"causal": causal, "scale": scale, "backend": backend}
    passes = partial(attention_forward, **options), partial(attention_backward, **options)
    return FlashAttention.apply(q, k, v, *passes)


def _empty_gradients(
    grad_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object
) -> tuple[torch.Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


@operator(_empty_gradients)
def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    *,
    backend: str = AUTO,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v, from that of the output; see `reference.flash.flash_backward`.

    `delta`, float32 `[query tokens, heads]`, is the sum of grad_out · out over each row, less the
    gradient of the log-sum-exp if that has one. The gradients have the dtypes of q, k and v.
    """
    check_tensor("q", q, ("tokens", "heads", "head_dim"), FLOATS)
    check_tensor("k", k, ("keys", "kv_heads", q.shape[2]), (q.dtype,), like=q)
    check_tensor("v", v, tuple(k.shape), (q.dtype,), like=q)
    check_tensor("grad_out", grad_out, tuple(q.shape), (q.dtype,), like=q)
    for name, tensor in (("lse", lse), ("delta", delta)):
        check_tensor(name, tensor, tuple(q.shape[:2]), (torch.float32,), like=q)
    check_heads(q.shape[1], k.shape[1])
