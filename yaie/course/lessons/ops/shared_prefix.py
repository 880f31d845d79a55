"""Attention that reads a shared prefix once."""

from __future__ import annotations

import torch
from torch import Tensor

from yaie.ops.attention import check_cache, check_lengths, empty_state
from yaie.ops.checks import check_tensor, known
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(empty_state)
def shared_prefix_attention(
    q: Tensor, key_pool: Tensor, value_pool: Tensor, block_tables: Tensor,
    context_lens: Tensor, shared_len: int, scale: float | None = None, *,
    backend: str = AUTO,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A decode step of sequences with a prefix in common, which is read once for all of them.

    The result is that of `paged_attention_forward` with one query per sequence; see
    `reference.shared_prefix`.
    """
    check_cache(q, key_pool, value_pool)
    block_size = key_pool.shape[1]
    check_tensor("context_lens", context_lens, (q.shape[0],), (torch.int32,), like=q)
    shape = (q.shape[0], "max_blocks")
    check_tensor("block_tables", block_tables, shape, (torch.int32,), like=q)
    if not isinstance(shared_len, int):
        raise TypeError(f"shared_len must be an int, got {type(shared_len).__name__}")
    shared_blocks = shared_len // max(block_size, 1)
    if shared_len < 0 or shared_blocks * block_size != shared_len:
        raise ValueError(f"shared_len must be a multiple of {block_size}, got {shared_len}")
    if shared_blocks > block_tables.shape[1]:
        raise ValueError(
            f"shared_len is {shared_len}, but block_tables have {block_tables.shape[1]} blocks "
            f"of {block_size}"
        )
    if known(q) and q.shape[0]:
        starts = torch.arange(q.shape[0] + 1, dtype=torch.int32)
        check_lengths(q.shape[0], key_pool, block_tables, context_lens, starts)
        if (shortest := int(context_lens.min())) < shared_len:
            raise ValueError(f"shared_len must be at most {shortest}, got {shared_len}")
        if (block_tables[:, :shared_blocks] != block_tables[:1, :shared_blocks]).any():
            raise ValueError(f"block_tables must begin with the same {shared_blocks} blocks")
