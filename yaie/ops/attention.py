"""Attention operators: dense, and over the paged cache."""

from __future__ import annotations

from itertools import pairwise

import torch

from yaie import attention as reference
from yaie.ops.checks import FLOATS, check_heads, check_range, check_tensor


def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sequence; see `yaie.attention.attention` for arguments and result."""
    check_tensor("q", q, ("tokens", "heads", "head_dim"), FLOATS)
    check_tensor("k", k, ("keys", "kv_heads", q.shape[2]), (q.dtype,), like=q)
    check_tensor("v", v, tuple(k.shape), (q.dtype,), like=q)
    check_heads(q.shape[1], k.shape[1])
    return reference.attention(q, k, v, causal, scale)


def paged_attention_forward(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a ragged batch over the paged cache; see `yaie.attention.paged_attention`."""
    check_tensor("q", q, ("tokens", "heads", "head_dim"), FLOATS)
    pool_shape = ("num_blocks", "block_size", "kv_heads", q.shape[2])
    check_tensor("key_pool", key_pool, pool_shape, (q.dtype,), like=q, contiguous=True)
    pool_shape = tuple(key_pool.shape)
    check_tensor("value_pool", value_pool, pool_shape, (q.dtype,), like=q, contiguous=True)
    check_tensor("context_lens", context_lens, ("batch",), (torch.int32,), like=q)
    batch = len(context_lens)
    check_tensor("block_tables", block_tables, (batch, "max_blocks"), (torch.int32,), like=q)
    check_tensor("cu_seqlens", cu_seqlens, (batch + 1,), (torch.int32,), like=q)
    check_heads(q.shape[1], key_pool.shape[2])
    if q.device.type == "cpu":  # a GPU would have to be awaited
        _check_lengths(q, key_pool, block_tables, context_lens, cu_seqlens)
    return reference.paged_attention(
        q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, scale
    )


def _check_lengths(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    cu_seqlens: torch.Tensor,
) -> None:
    """Check that queries, contexts and block tables fit each other."""
    starts, lengths = cu_seqlens.tolist(), context_lens.tolist()
    counts = [end - start for start, end in pairwise(starts)]
    if starts[0] != 0 or starts[-1] != len(q) or min(counts, default=0) < 0:
        raise ValueError(f"cu_seqlens must ascend from 0 to {len(q)} (rows of q), got {starts}")
    if any(length < count for length, count in zip(lengths, counts, strict=True)):
        raise ValueError(f"context_lens must be at least the queries {counts}, got {lengths}")
    room = block_tables.shape[1] * key_pool.shape[1]
    if max(lengths, default=0) > room:
        raise ValueError(f"block_tables hold {room} tokens a sequence, context_lens has {lengths}")
    first_tokens = torch.arange(block_tables.shape[1]) * key_pool.shape[1]
    in_use = first_tokens < context_lens.unsqueeze(1)
    check_range("block_tables", block_tables[in_use], len(key_pool))
