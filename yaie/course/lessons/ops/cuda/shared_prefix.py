"""A decode step whose sequences have a prefix in common, by CUDA C++ kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from yaie.ops.cuda.flash import State
from yaie.ops.cuda.launching import constants, token_rows
from yaie.ops.cuda.paged import decode, decode_step, mma
from yaie.ops.plans import made
from yaie.ops.reference.attention import positive_scale
from yaie.ops.registry import Unsupported, announce, multiprocessors

_CASCADE = constants("paged/cascade.cu")
WORTH = 100 << 20  # bytes of keys and values that a cascade must save to be worth a second launch


def shared_prefix_attention(
    q: Tensor, key_pool: Tensor, value_pool: Tensor, block_tables: Tensor,
    context_lens: Tensor, shared_len: int, scale: float | None,
) -> State:  # fmt: skip
    """See `reference.shared_prefix`.

    A short prefix is read for every sequence, which takes less time than a second launch.
    """
    batch = (q, key_pool, value_pool, block_tables, context_lens)
    token = 2 * key_pool.shape[2] * key_pool.shape[3] * key_pool.element_size()
    if (q.shape[0] - 1) * shared_len * token >= WORTH:
        try:
            return cascade(*batch, shared_len, scale)
        except Unsupported as reason:
            announce("shared_prefix_attention", "cuda's cascade", str(reason))
    return decode_step(*batch, None, scale)


def cascade(*operands: Any) -> State:
    """The prefix is read once for all sequences and merged with the rest of each; operands as for
    `shared_prefix_attention`."""
    q, key_pool, value_pool, tables, lengths, shared_len, scale = operands
    if key_pool.element_size() == 1:
        raise Unsupported("cascade.cu reads a cache in float16 or bfloat16")
    # What has to be copied is copied here, since cascade.cu reads it before it waits for mma.cu.
    q, scale = positive_scale(token_rows(q), scale)
    operands = q, key_pool, value_pool, tables.contiguous(), lengths.contiguous(), None, scale
    state = mma(*operands, skip=shared_len)
    (batch, heads, head_dim), kv_heads = q.shape, key_pool.shape[2]
    if batch == 0 or shared_len == 0:
        return state
    tiles = -(-batch * (heads // kv_heads) // _CASCADE["ROWS"]) * kv_heads
    splits = max(1, min(multiprocessors(q.device) // tiles, -(-shared_len // _CASCADE["TILE"])))
    size = splits * batch * heads * (head_dim + 1)
    workspace = made(q.new_empty(size, dtype=torch.float32)), shared_len, splits
    return decode("paged/cascade.cu", "cascade", *operands, workspace=workspace, state=state)
