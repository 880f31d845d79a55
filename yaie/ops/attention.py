"""Attention over the paged cache."""

from itertools import pairwise

import torch
from torch import Tensor

from yaie.ops.checks import FLOATS, FP8, check_heads, check_range, check_tensor, known
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


def empty_state(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """An empty output and log-sum-exp."""
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


@operator(empty_state, name="paged_attention")
def paged_attention_forward(
    q: Tensor, key_pool: Tensor, value_pool: Tensor, block_tables: Tensor,
    context_lens: Tensor, cu_seqlens: Tensor, scale: float | None = None, *,
    backend: str = AUTO,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of a ragged batch over the paged cache; see `reference.attention`. On a GPU lengths
    are not checked; a query that sees no key gets zeros, and a log-sum-exp of -inf."""
    check_cache(q, key_pool, value_pool)
    check_tensor("context_lens", context_lens, ("batch",), (torch.int32,), like=q)
    batch = context_lens.shape[0]
    check_tensor("block_tables", block_tables, (batch, "max_blocks"), (torch.int32,), like=q)
    check_tensor("cu_seqlens", cu_seqlens, (batch + 1,), (torch.int32,), like=q)
    if known(q):
        check_lengths(q.shape[0], key_pool, block_tables, context_lens, cu_seqlens)


def check_cache(q: Tensor, key_pool: Tensor, value_pool: Tensor) -> None:
    """Check that queries and the two pools fit each other."""
    check_tensor("q", q, ("tokens", "heads", "head_dim"), FLOATS)
    shape = ("num_blocks", "block_size", "kv_heads", q.shape[2])
    check_tensor("key_pool", key_pool, shape, (q.dtype, FP8), like=q, contiguous=True)
    shape = tuple(key_pool.shape)
    check_tensor("value_pool", value_pool, shape, (key_pool.dtype,), like=q, contiguous=True)
    check_heads(q.shape[1], key_pool.shape[2])


def check_lengths(
    num_queries: int, pool: Tensor, block_tables: Tensor, context_lens: Tensor, cu_seqlens: Tensor
) -> None:
    """Check that queries, contexts, block tables and pools fit each other; CPU tensors only."""
    starts, lengths = cu_seqlens.tolist(), context_lens.tolist()
    counts = [end - start for start, end in pairwise(starts)]
    check_starts("cu_seqlens", starts, num_queries, "q")
    if any(length < count for length, count in zip(lengths, counts, strict=True)):
        raise ValueError(f"context_lens must be at least the queries {counts}, got {lengths}")
    num_blocks, block_size = pool.shape[:2]
    room = block_tables.shape[1] * block_size
    if max(lengths, default=0) > room:
        raise ValueError(f"block_tables hold {room} tokens each, context_lens has {lengths}")
    if min(lengths, default=room) <= room - block_size:  # past a context may be anything
        first_tokens = torch.arange(block_tables.shape[1]) * block_size
        block_tables = block_tables[first_tokens < context_lens.unsqueeze(1)]
    check_range("block_tables", block_tables, num_blocks)


def check_starts(name: str, starts: list[int], size: int, of: str) -> None:
    """Check that sequences which lie end to end fill `size` rows of `of`."""
    steps = [end - start for start, end in pairwise(starts)]
    if not starts or starts[0] != 0 or starts[-1] != size or min(steps, default=0) < 0:
        raise ValueError(f"{name} must ascend from 0 to {size} (rows of {of}), got {starts}")
