"""The log-sum-exp is that of each one's own tokens."""

import torch

from yaie.ops.reference.attention import attention, merge_states, paged_attention

EXPECT = "over each one's own tokens alone"


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
    prefix = attention(q, keys, values, causal=False, scale=scale)
    return merge_states(state, prefix)[0], state[1]
