"""FlashAttention: attention computed a tile at a time, forward and backward.

A tile of queries stays put while the tiles of keys and values that it may see pass by. No more
than `tile_q * tile_k` scores per head exist at a time, so nothing of the size queries × keys is
ever stored. Only the log-sum-exp of each row is kept for the backward pass: with it every tile
of weights can be computed again.

The tensors `q`, `k`, `v` and the results are touched only by slices of tokens, as a kernel would
load and store them. Inside, a tile is `[heads, tokens, head_dim]`, in float32 (float64 if given
it). Sources: Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from yaie.course.lessons.online_softmax import OnlineSoftmax, finite
from yaie.ops.reference.online_softmax import State

# ------------------------------------------------------------------------------------- tiles


def key_tiles(
    first: int, last: int, num_k: int, tile_k: int, causal: bool = True
) -> tuple[int, int]:
    """Sort the tiles of keys by what a tile of queries may see of them.

    Tile `j` holds the keys `j * tile_k` to `(j + 1) * tile_k - 1`, or to `num_k - 1` if it is the
    last one. A causal query at position `p` sees the keys 0 to `p`; the others see all keys.

    Args:
        first, last: positions of the first and of the last query of the tile, counted as the keys
            are. Negative for a query that comes before all keys, and sees none.

    Returns:
        Two counts, (whole, seen). The tiles 0 to whole - 1 are seen whole by every query, the
        tiles whole to seen - 1 in part, so they need a mask. No query sees a key of any tile
        after those: they are skipped.
    """
    num_tiles = -(-num_k // tile_k)
    if not causal or first >= num_k - 1:
        return num_tiles, num_tiles
    return max(0, first + 1) // tile_k, -(-max(0, last + 1) // tile_k)


def hidden_keys(queries: range, keys: range, device: torch.device | str = "cpu") -> torch.Tensor:
    """Which keys a causal query must not see, bool `[queries, keys]`, for ranges of positions."""
    rows = torch.arange(queries.start, queries.stop, device=device).unsqueeze(1)
    return torch.arange(keys.start, keys.stop, device=device) > rows


def heads_first(tile: torch.Tensor, num_heads: int) -> torch.Tensor:
    """A tile `[tokens, KV heads, head_dim]` as `[num_heads, tokens, head_dim]`, ready to compute.

    Each KV head is repeated for the query heads that read it, and half precision is widened.
    """
    wide = tile.to(torch.promote_types(tile.dtype, torch.float32))
    return wide.repeat_interleave(num_heads // tile.shape[1], dim=1).transpose(0, 1)


def tokens_first(tile: torch.Tensor, num_heads: int) -> torch.Tensor:
    """The way back: `[heads, tokens, head_dim]` as `[tokens, num_heads, head_dim]`.

    With fewer heads than the tile has, those that read the same KV head are added up.
    """
    return tile.unflatten(0, (num_heads, -1)).sum(dim=1).transpose(0, 1)


# ------------------------------------------------------------------------------------- passes


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


def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`flash_backward` in tiles of 64, its results in the dtype of q: the operator's reference."""
    scale = q.shape[2] ** -0.5 if scale is None else scale
    grads = flash_backward(grad_out, q, k, v, lse, delta, causal, scale, 64, 64)
    return tuple(grad.to(q.dtype) for grad in grads)


# ------------------------------------------------------------------------------------- autograd


class FlashAttention(torch.autograd.Function):
    """A forward pass that returns the log-sum-exp, and a backward pass that begins with it.

    `FlashAttention.apply(q, k, v, forward_pass, backward_pass)`: the passes take the tensors of
    `flash_forward` and of `flash_backward`.
    """

    @staticmethod
    def forward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        forward_pass: Callable[..., State],
        backward_pass: Callable[..., tuple],
    ) -> State:
        return forward_pass(q, k, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: State) -> None:
        q, k, v, _, ctx.backward_pass = inputs
        ctx.save_for_backward(q, k, v, *output)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor, grad_lse: torch.Tensor) -> tuple:
        q, k, v, out, lse = ctx.saved_tensors
        # The log-sum-exp has the weights themselves for its gradient: d lse / d scores = P.
        delta = (grad_out.to(lse.dtype) * out.to(lse.dtype)).sum(dim=-1) - grad_lse
        grads = ctx.backward_pass(grad_out, q, k, v, lse, delta)
        dtypes = (x.dtype for x in (q, k, v))
        return *(grad.to(dtype) for grad, dtype in zip(grads, dtypes, strict=True)), None, None


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    tile_q: int = 64,
    tile_k: int = 64,
) -> State:
    """Compute what `reference.attention.attention` computes, in tiles; can be differentiated.

    For several sequences in one call, give it to `ragged_attention` or `paged_attention`, as their
    `attention`.

    Args and returns: as for `attention`, and `tile_q` and `tile_k`, the tokens of a tile.
    """
    if tile_q < 1 or tile_k < 1:
        raise ValueError(f"tile_q and tile_k must be at least 1, got {tile_q} and {tile_k}")
    scale = q.shape[2] ** -0.5 if scale is None else scale
    options = {"causal": causal, "scale": scale, "tile_q": tile_q, "tile_k": tile_k}
    passes = partial(flash_forward, **options), partial(flash_backward, **options)
    out, lse = FlashAttention.apply(q, k, v, *passes)
    return out, lse.float()
