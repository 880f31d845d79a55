"""Exercise 08.3: The backward pass, recomputed.

The gradients of q, k and v, by the same two loops as the forward pass. Each tile of weights is
computed again, exp(scores - lse), and needs no running maximum: the log-sum-exp is final. The
formulas are in the docstring. Several tiles of queries use one tile of keys, and several query
heads one KV head: their gradients add up (`tokens_first` with fewer heads adds the heads of a
group), in float32 even if q, k and v are in half precision.

You have
- `q`, `k`, `v`, `grad_out`: as in exercise 08.1; `grad_out` has the shape of q
- `lse`, `delta`: float32 `[query tokens, heads]`: the log-sum-exp of each row, and the sum over
  grad_out × out
- `heads_first(tile, num_heads)`, `tokens_first(tile, num_heads)`: as in exercise 08.1; with fewer
  heads than the tile has, `tokens_first` adds up the heads of a group
- `key_tiles(first, last, num_k, tile_k, causal)`, `hidden_keys(queries, keys, device)`: as in
  exercise 08.1
- `finite(x)`: returns a copy with 0 in place of -inf
- `x.mT`: the last two axes exchanged

In a terminal: yaie check 08.3, yaie hint 08.3, yaie reset 08.3.
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
    raise NotImplementedError("Exercise 08.3: The backward pass, recomputed")
