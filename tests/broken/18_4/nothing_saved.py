"""The whole context is read for every sequence."""

import torch

from yaie.ops.reference.attention import attention, paged_attention

EXPECT = "the 12 shared ones three times"


def shared_prefix_attention(
    q,
    key_pool,
    value_pool,
    block_tables,
    context_lens,
    shared_len,
    scale=None,
    attention=attention,
):
    starts = torch.arange(len(q) + 1, dtype=torch.int32)
    return paged_attention(
        q, key_pool, value_pool, block_tables, context_lens, starts, scale, attention
    )
