"""Averages the results of tiles, each normalized by itself."""

import torch

from yaie.ops.reference.flash import heads_first, hidden_keys, key_tiles, tokens_first

EXPECT = "Every tile was normalized by itself"


def flash_forward(q, k, v, causal, scale, tile_q, tile_k):
    num_q, num_heads, _ = q.shape
    num_k, past = len(k), len(k) - num_q
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
    for q_start in range(0, num_q, tile_q):
        rows = slice(q_start, min(q_start + tile_q, num_q))
        positions = range(past + rows.start, past + rows.stop)
        queries = heads_first(q[rows], num_heads)
        total = torch.zeros_like(queries)
        sums = queries.new_full(queries.shape[:2], float("-inf"))
        whole, seen = key_tiles(positions[0], positions[-1], num_k, tile_k, causal)
        for tile in range(seen):
            columns = slice(tile * tile_k, min((tile + 1) * tile_k, num_k))
            keys, values = (heads_first(x[columns], num_heads) for x in (k, v))
            scores = queries @ keys.mT * scale
            if tile >= whole:
                hidden = hidden_keys(positions, range(columns.start, columns.stop))
                scores.masked_fill_(hidden, float("-inf"))
            total += scores.softmax(dim=-1).nan_to_num(0.0) @ values / seen
            sums = torch.logaddexp(sums, scores.logsumexp(dim=-1))
        out[rows] = tokens_first(total, num_heads).to(q.dtype)
        lse[rows] = sums.T
    return out, lse
