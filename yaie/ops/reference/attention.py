"""Attention, written to be read: dense, ragged, and over a paged cache.

Shapes, everywhere: queries `[query tokens, heads, head_dim]`, keys and values
`[key tokens, KV heads, head_dim]`. With grouped-query attention, heads is a multiple of KV heads
and head `h` reads KV head `h // (heads // KV heads)`. Every attention returns its output, in the
dtype of the queries, and the natural logarithm of the sum of exponentials of each row of scores
(float32, `[query tokens, heads]`; -inf where a row has nothing to attend to). With the two,
partial results over different keys can be merged.

Half-precision inputs are computed in float32, float64 inputs in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from yaie.ops.reference.online_softmax import State, safe_softmax

QUERY_TILE = 64  # queries computed at a time: of 32 to 256 the fastest, on two cores


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> State:
    """Compute softmax(q kᵀ · scale) v, with all scores in memory together.

    Args:
        q: `[query tokens, heads, head_dim]`.
        k, v: `[key tokens, KV heads, head_dim]`. Query head `h` reads KV head
            `h // (heads // KV heads)`.
        causal: the queries are the last tokens of the sequence, so that the last query sees all
            keys, the one before it all but the last, and so on (aligned bottom-right). Without it
            every query sees every key.
        scale: factor of the scores, by default 1 / sqrt(head_dim).

    Returns:
        Output `[query tokens, heads, head_dim]`, in the dtype of q, and the natural log-sum-exp
        of each row of scaled scores, `[query tokens, heads]`, float32 whatever the dtype of q, also
        for float64. Half precision is computed in float32. The arguments are left as they are.
    """
    (num_q, num_heads, head_dim), (num_k, num_kv_heads, _) = q.shape, k.shape
    group = num_heads // num_kv_heads
    scale = head_dim**-0.5 if scale is None else scale
    precision = torch.promote_types(q.dtype, torch.float32)
    # The query heads that share a KV head become rows of one product: [KV heads, group × q, dim].
    grouped = (q.to(precision) * scale).reshape(num_q, num_kv_heads, group, head_dim)
    grouped = grouped.permute(1, 2, 0, 3).reshape(num_kv_heads, group * num_q, head_dim)
    scores = torch.bmm(grouped, k.to(precision).permute(1, 2, 0))
    if causal and num_q > 1:  # one query is the last token, and sees everything
        hidden = ~causal_mask(num_q, num_k, q.device)
        scores.view(num_heads, num_q, num_k).masked_fill_(hidden, float("-inf"))
    weights, lse = safe_softmax(scores)
    out = torch.bmm(weights, v.to(precision).transpose(0, 1)).view(num_heads, num_q, head_dim)
    return out.transpose(0, 1).to(q.dtype), lse.view(num_heads, num_q).T.float()


def positive_scale(q: torch.Tensor, scale: float | None) -> tuple[torch.Tensor, float]:
    """Queries and a positive factor that give the same scores, for kernels that scale the maximum
    of the scores in their place. It is not 0 either, because -inf × 0 is NaN."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return (-q if scale < 0 else q), max(abs(scale), 1e-30)


def causal_mask(num_q: int, num_k: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Which keys each query may see, bool `[num_q, num_k]`, for queries at the sequence's end."""
    positions = torch.arange(num_k - num_q, num_k, device=device)
    return torch.arange(num_k, device=device) <= positions.unsqueeze(1)


def ragged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    attention: Callable[..., State] = attention,
) -> State:
    """Attention of several sequences of any lengths that lie end to end, without padding.

    Sequence `i` has the queries `cu_seqlens_q[i]` to `cu_seqlens_q[i + 1]` and the keys
    `cu_seqlens_k[i]` to `cu_seqlens_k[i + 1]`, and may have none of either. Each sequence is
    computed by itself, so no query sees a key of another one.

    Args:
        q, k, v, causal, scale: as for `attention`, of all sequences together.
        cu_seqlens_q, cu_seqlens_k: int32 `[batch + 1]`, ascending from 0.
        attention: computes one sequence.
    """
    out = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], float("-inf"), device=q.device)
    starts = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    for (q_start, q_end), (k_start, k_end) in starts:
        rows, columns = slice(q_start, q_end), slice(k_start, k_end)
        out[rows], lse[rows] = attention(q[rows], k[columns], v[columns], causal, scale)
    return out, lse


def paged_attention(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float | None = None,
    attention: Callable[..., State] = attention,
) -> State:
    """Causal attention of a ragged batch whose keys and values lie in a paged cache.

    Sequence `i` has the queries `cu_seqlens[i]` to `cu_seqlens[i + 1]`, which are the last of its
    `context_lens[i]` tokens. Each sequence is computed by itself, over exactly its own keys, so the
    result does not depend on what else is in the batch, bit for bit. A long prompt is computed a
    few queries at a time, over the keys that the last of them sees: most scores that the mask hides
    are never computed, and the others stay in a processor's cache.

    Args:
        q, scale: as for `attention`, of all sequences together.
        key_pool, value_pool: `[num_blocks, block_size, KV heads, head_dim]`, in the dtype of q or
            in float8_e4m3fn.
        block_tables: int32 `[batch, max_blocks]`; entries beyond a sequence's length are ignored.
        context_lens: int32 `[batch]`.
        cu_seqlens: int32 `[batch + 1]`, where each sequence's queries begin.
        attention: computes some queries of one sequence.
    """
    block_size = key_pool.shape[1]
    starts, lengths = cu_seqlens.tolist(), context_lens.tolist()
    out, lse = torch.zeros_like(q), q.new_zeros(q.shape[:2], dtype=torch.float32)
    for i, length in enumerate(lengths):
        table = block_tables[i, : -(-length // block_size)]
        keys = key_pool.index_select(0, table).flatten(0, 1)
        values = value_pool.index_select(0, table).flatten(0, 1)
        for start in range(starts[i], starts[i + 1], QUERY_TILE):
            rows = slice(start, min(start + QUERY_TILE, starts[i + 1]))
            seen = max(length - (starts[i + 1] - rows.stop), 0)
            out[rows], lse[rows] = attention(
                q[rows], keys[:seen], values[:seen], causal=True, scale=scale
            )
    return out, lse
