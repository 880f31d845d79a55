"""Solution of exercise 08.3: The backward pass, recomputed.

The gradients of q, k and v, by the same two loops as the forward pass. Each tile of weights is
computed again, exp(scores - lse), and needs no running maximum: the log-sum-exp is final. The
formulas are in the docstring. Several tiles of queries use one tile of keys, and several query
heads one KV head: their gradients add up (`tokens_first` with fewer heads adds the heads of a
group), in float32 even if q, k and v are in half precision.

Generated from flash_backward in yaie/course/lessons/ops/reference/flash.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.course.lessons.online_softmax import finite
from yaie.course.lessons.ops.reference.flash import (
    heads_first,
    hidden_keys,
    key_tiles,
    tokens_first,
)


def flash_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool,
    scale: float,
    tile_q: int,
    tile_k: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of q, k and v, with every tile of weights computed again.

    For each tile, with P the weights exp(scores - lse) and dO the gradient of the output:

        dV += Pᵀ dO        dP = dO Vᵀ        dS = P ∘ (dP - delta)
        dQ += dS K · scale                   dK += dSᵀ Q · scale

    Args:
        grad_out: gradient of the output, `[query tokens, heads, head_dim]`.
        q, k, v, causal, scale, tile_q, tile_k: as `flash_forward` had them.
        lse: the log-sum-exp that it returned, `[query tokens, heads]`; -inf where a row saw no
            key, which has no gradient then.
        delta: `(grad_out * out).sum(-1)`, `[query tokens, heads]`: for each row the mean of dP,
            weighted by P.

    Returns:
        Gradients of q, k and v with their shapes, in float32 (float64 if q is). A KV head
        collects the gradients of all query heads that read it.
    """
    (num_q, num_heads, _), num_kv_heads = q.shape, k.shape[1]
    num_k, past = len(k), len(k) - num_q
    precision = torch.promote_types(q.dtype, torch.float32)
    grad_q, grad_k, grad_v = (torch.zeros_like(x, dtype=precision) for x in (q, k, v))
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
                hidden = hidden_keys(positions, range(columns.start, columns.stop), q.device)
                scores.masked_fill_(hidden, float("-inf"))
            weights = (scores - finite(row_lse)).exp()
            grad_scores = weights * (grads @ values.mT - row_delta) * scale
            grad_queries += grad_scores @ keys
            grad_k[columns] += tokens_first(grad_scores.mT @ queries, num_kv_heads)
            grad_v[columns] += tokens_first(weights.mT @ grads, num_kv_heads)
        grad_q[rows] = tokens_first(grad_queries, num_heads)
    return grad_q, grad_k, grad_v
