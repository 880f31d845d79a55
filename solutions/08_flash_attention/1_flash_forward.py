"""Solution of exercise 08.1: Attention, a tile at a time.

For each tile of queries: load it, begin an online softmax, go through the tiles of keys and
values that it may see, finish, store. Tiles that are seen in part need a mask. Scores are
multiplied by `scale`, whatever head_dim is. Touch q, k, v, out and lse by slices of tokens only,
such as `k[columns]`: that is the traffic that is counted.

Generated from flash_forward in yaie/course/lessons/ops/reference/flash.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.course.lessons.online_softmax import OnlineSoftmax
from yaie.course.lessons.ops.reference.flash import (
    heads_first,
    hidden_keys,
    key_tiles,
    tokens_first,
)
from yaie.ops.reference.online_softmax import State


def flash_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
    tile_q: int,
    tile_k: int,
) -> State:
    """Compute softmax(q kᵀ · scale) v, a tile of queries against a tile of keys at a time.

    Args:
        q: `[query tokens, heads, head_dim]`.
        k, v: `[key tokens, KV heads, head_dim]`. Query head `h` reads KV head
            `h // (heads // KV heads)`.
        causal: the queries are the last tokens of the sequence: query `i` is at position
            `key tokens - query tokens + i` and sees the keys up to its own position. Without it
            every query sees every key.
        scale: factor of the scores.
        tile_q, tile_k: tokens of a tile of queries, and of a tile of keys and values. The last
            tile of either may be shorter.

    Returns:
        Output `[query tokens, heads, head_dim]`, in the dtype of q, and the natural log-sum-exp
        of each row of scaled scores, `[query tokens, heads]`, in float32 (float64 if q is). A row
        that sees no key has zeros and -inf. Tiles of keys that no query of a tile may see are
        not read. No tensor of more than `heads * tile_q * tile_k` scores is made.
    """
    num_q, num_heads, head_dim = q.shape
    num_k, past = len(k), len(k) - num_q
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
    for q_start in range(0, num_q, tile_q):
        rows = slice(q_start, min(q_start + tile_q, num_q))
        positions = range(past + rows.start, past + rows.stop)
        queries = heads_first(q[rows], num_heads)
        state = OnlineSoftmax.empty(queries.shape[:2], head_dim, like=queries)
        whole, seen = key_tiles(positions[0], positions[-1], num_k, tile_k, causal)
        for tile in range(seen):
            columns = slice(tile * tile_k, min((tile + 1) * tile_k, num_k))
            keys, values = (heads_first(x[columns], num_heads) for x in (k, v))
            scores = queries @ keys.mT * scale
            if tile >= whole:
                hidden = hidden_keys(positions, range(columns.start, columns.stop), q.device)
                scores.masked_fill_(hidden, float("-inf"))
            state.update(scores, values)
        tile_out, tile_lse = state.finish()
        out[rows] = tokens_first(tile_out, num_heads).to(q.dtype)
        lse[rows] = tile_lse.T
    return out, lse
