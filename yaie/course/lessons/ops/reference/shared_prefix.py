"""A decode step of sequences that begin with the same blocks, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from yaie.course.lessons.online_softmax import merge_states
from yaie.ops.reference.attention import attention, paged_attention
from yaie.ops.reference.online_softmax import State


def shared_prefix_attention(
    q: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    shared_len: int,
    scale: float | None = None,
    attention: Callable[..., State] = attention,
) -> State:
    """Attention of one query per sequence, where all sequences begin with the same blocks.

    The shared prefix is read once for all queries, and the rest of each sequence by itself. The
    two partial results are merged. The result is that of `paged_attention`.
    Sources: Juravsky et al., "Hydragen", 2024; Ye et al., "Cascade Inference", 2024.

    Args:
        q: `[batch, heads, head_dim]`, the last token of each sequence.
        key_pool, value_pool, block_tables, context_lens, scale: as in `paged_attention`.
        shared_len: how many tokens all sequences have in common, in the same blocks, the first
            `shared_len // block_size` of every table; a multiple of block_size, and at most the
            shortest context.
        attention: computes one sequence.

    Returns:
        Output `[batch, heads, head_dim]` and log-sum-exp `[batch, heads]`.
    """
    shared_blocks = shared_len // key_pool.shape[1]
    starts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
    cache = key_pool, value_pool
    own = block_tables[:, shared_blocks:], context_lens - shared_len, starts
    state = paged_attention(q, *cache, *own, scale, attention)
    if not shared_len or not len(q):
        return state
    keys, values = (pool[block_tables[0, :shared_blocks]].flatten(0, 1) for pool in cache)
    return merge_states(state, attention(q, keys, values, causal=False, scale=scale))
