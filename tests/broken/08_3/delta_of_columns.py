"""Takes the delta of a query off a column."""

import torch

from yaie.ops.reference.flash import heads_first, hidden_keys, key_tiles, tokens_first
from yaie.ops.reference.online_softmax import finite

EXPECT = "delta belongs to the rows"


def flash_backward(grad_out, q, k, v, lse, delta, causal, scale, tile_q, tile_k):
    (num_q, num_heads, _), num_kv_heads = q.shape, k.shape[1]
    num_k, past = len(k), len(k) - num_q
    grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
    for q_start in range(0, num_q, tile_q):
        rows = slice(q_start, min(q_start + tile_q, num_q))
        positions = range(past + rows.start, past + rows.stop)
        queries, grads = (heads_first(x[rows], num_heads) for x in (q, grad_out))
        row_lse, row_delta = (x[rows].T.unsqueeze(-1) for x in (lse, delta))
        grad_queries = torch.zeros_like(queries)
        whole, seen = key_tiles(positions[0], positions[-1], num_k, tile_k, causal)
        for tile in range(seen):
            columns = slice(tile * tile_k, min((tile + 1) * tile_k, num_k))
            keys, values = (heads_first(x[columns], num_heads) for x in (k, v))
            scores = queries @ keys.mT * scale
            if tile >= whole:
                hidden = hidden_keys(positions, range(columns.start, columns.stop))
                scores.masked_fill_(hidden, float("-inf"))
            weights = (scores - finite(row_lse)).exp()
            grad_scores = weights * (grads @ values.mT - row_delta.mT[..., : keys.shape[1]]) * scale
            grad_queries += grad_scores @ keys
            grad_k[columns] += tokens_first(grad_scores.mT @ queries, num_kv_heads)
            grad_v[columns] += tokens_first(weights.mT @ grads, num_kv_heads)
        grad_q[rows] = tokens_first(grad_queries, num_heads)
    return grad_q, grad_k, grad_v
