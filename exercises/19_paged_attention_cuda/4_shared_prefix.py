"""Exercise 19.4: Read a shared prefix once.

In Python, with two functions that are there: paged_attention computes each sequence's attention
over the tokens that its table names, merge_states merges two partial states. Let each sequence
attend to its own tokens, which come after the shared blocks, and all sequences together to the
shared ones, in one call of the argument `attention`. Pass `attention` to paged_attention as well.
Then merge. shared_len may be 0, and a sequence may have no tokens of its own.

You have
- `q`: `[batch, heads, head_dim]`, a query for each sequence
- `key_pool`, `value_pool`: `[num_blocks, block_size, KV heads, head_dim]`
- `block_tables`, `context_lens`: int32 `[batch, most]` and `[batch]`; the first `shared_len`
  tokens lie in the same blocks for all, `shared_len` is a multiple of block_size
- `paged_attention(q, key_pool, value_pool, block_tables, context_lens, starts, scale,
  attention)`: returns a state; sequence i has queries `starts[i]` to `starts[i + 1] - 1`
- `attention(q, k, v, causal=, scale=)`: returns a state; k and v are `[keys, KV heads, head_dim]`
- `merge_states(a, b)`: returns the state over both sets of keys; a state is (output, log-sum-exp)

In a terminal: yaie check 19.4, yaie hint 19.4, yaie reset 19.4.
"""

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
    raise NotImplementedError("Exercise 19.4: Read a shared prefix once")
