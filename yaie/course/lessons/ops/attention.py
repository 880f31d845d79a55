"""Attention without a cache: of one sequence, or of several that lie end to end."""

import torch
from torch import Tensor

from yaie.ops.attention import check_starts, empty_state
from yaie.ops.checks import FLOATS, check_heads, check_tensor, known
from yaie.ops.library import define, planned
from yaie.ops.registry import AUTO


@planned("attention", "ragged_attention")
def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = True,
    scale: float | None = None, cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None, *, backend: str = AUTO,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of one sequence, or of several that lie end to end.

    Args:
        q, k, v, causal, scale: see `reference.attention.attention`.
        cu_seqlens_q, cu_seqlens_k: int32 `[batch + 1]`, where each sequence's queries and keys
            begin; see `reference.attention.ragged_attention`. Both or neither.
        backend: see `yaie.ops.registry`.

    Returns:
        Output, as q, and natural log-sum-exp, float32 `[query tokens, heads]`.
    """
    check_tensor("q", q, ("tokens", "heads", "head_dim"), FLOATS)
    check_tensor("k", k, ("keys", "kv_heads", q.shape[2]), (q.dtype,), like=q)
    check_tensor("v", v, tuple(k.shape), (q.dtype,), like=q)
    check_heads(q.shape[1], k.shape[1])
    if cu_seqlens_q is None and cu_seqlens_k is None:
        return _attention(q, k, v, causal, scale, backend=backend)
    check_tensor("cu_seqlens_q", cu_seqlens_q, ("batch + 1",), (torch.int32,), like=q)
    shape = tuple(cu_seqlens_q.shape)
    check_tensor("cu_seqlens_k", cu_seqlens_k, shape, (torch.int32,), like=q)
    if known(q):
        check_starts("cu_seqlens_q", cu_seqlens_q.tolist(), q.shape[0], "q")
        check_starts("cu_seqlens_k", cu_seqlens_k.tolist(), k.shape[0], "k")
    return _ragged_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, backend=backend)


_attention = define(
    "attention(Tensor q, Tensor k, Tensor v, bool causal, float? scale, *, "
    'str backend="auto") -> (Tensor, Tensor)',
    empty_state,
)
_ragged_attention = define(
    "ragged_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    'bool causal, float? scale, *, str backend="auto") -> (Tensor, Tensor)',
    empty_state,
)
