"""The function that is passed is not used for the prefix."""

import torch

from yaie.ops.reference.attention import attention, merge_states, paged_attention

EXPECT = "attention has read 13 keys"


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
    shared_blocks = shared_len // key_pool.shape[1]
    starts = torch.arange(len(q) + 1, dtype=torch.int32)
    cache = key_pool, value_pool
    own = block_tables[:, shared_blocks:], context_lens - shared_len, starts
    state = paged_attention(q, *cache, *own, scale, attention)
    if not shared_len:
        return state
    keys, values = (pool[block_tables[0, :shared_blocks]].flatten(0, 1) for pool in cache)
    scores = torch.einsum(
        "qkgd,tkd->qkgt", q.unflatten(1, (keys.shape[1], -1)).float(), keys.float()
    ) * (q.shape[2] ** -0.5 if scale is None else scale)
    out = torch.einsum("qkgt,tkd->qkgd", scores.softmax(-1), values.float())
    prefix = out.flatten(1, 2).to(q.dtype), scores.logsumexp(-1).flatten(1, 2)
    return merge_states(state, prefix)
