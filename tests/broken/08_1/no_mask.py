"""Shows every key to every query."""

import torch

from yaie.ops.reference.flash import heads_first, hidden_keys, key_tiles, tokens_first
from yaie.ops.reference.online_softmax import OnlineSoftmax

EXPECT = "No key is hidden"


def flash_forward(q, k, v, causal, scale, tile_q, tile_k):
    num_q, num_heads, head_dim = q.shape
    num_k, past = len(k), len(k) - num_q
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
    for q_start in range(0, num_q, tile_q):
        rows = slice(q_start, min(q_start + tile_q, num_q))
        positions = range(past + rows.start, past + rows.stop)
        queries = heads_first(q[rows], num_heads)
        state = OnlineSoftmax.empty(queries.shape[:2], head_dim, like=queries)
        whole, seen = key_tiles(positions[0], positions[-1], num_k, tile_k, False)
        for tile in range(seen):
            columns = slice(tile * tile_k, min((tile + 1) * tile_k, num_k))
            keys, values = (heads_first(x[columns], num_heads) for x in (k, v))
            scores = queries @ keys.mT * scale
            if tile >= whole:
                hidden = hidden_keys(positions, range(columns.start, columns.stop))
                scores.masked_fill_(hidden, float("-inf"))
            state.update(scores, values)
        tile_out, tile_lse = state.finish()
        out[rows] = tokens_first(tile_out, num_heads).to(q.dtype)
        lse[rows] = tile_lse.T
    return out, lse
