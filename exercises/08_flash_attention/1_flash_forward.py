"""Exercise 08.1: Attention, a tile at a time.

For each tile of queries: load it, begin an online softmax, go through the tiles of keys and
values that it may see, finish, store. Tiles that are seen in part need a mask. Scores are
multiplied by `scale`, whatever head_dim is. Touch q, k, v, out and lse by slices of tokens only,
such as `k[columns]`: that is the traffic that is counted.

You have
- `q`, `k`, `v`: `[tokens, heads, head_dim]` for q, `[tokens, KV heads, head_dim]` for k and v;
  the queries are the last tokens of the sequence
- `heads_first(tile, num_heads)`: returns a loaded tile as `[num_heads, tokens, head_dim]` in
  float32 (float64 stays), each KV head repeated for its group
- `tokens_first(tile, num_heads)`: the way back, `[tokens, num_heads, head_dim]`
- `key_tiles(first, last, num_k, tile_k, causal)`: for the positions of a tile's first and last
  query returns two ints: tiles that are seen whole, tiles that are seen at all
- `hidden_keys(queries, keys, device)`: for two `range`s of positions returns bool `[queries,
  keys]`, True where the key must be hidden
- `OnlineSoftmax.empty(rows, head_dim, like)`: a state without scores; `rows` is a shape such as
  `(heads, queries)`
- `state.update(scores, values)`, `state.finish()`: exercise 07.1; returns output `[heads, rows,
  head_dim]` and log-sum-exp `[heads, rows]`

In a terminal: yaie check 08.1, yaie hint 08.1, yaie reset 08.1.
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
    raise NotImplementedError("Exercise 08.1: Attention, a tile at a time")
