"""Exercises of notebook 08: FlashAttention's tiles, its forward pass and its backward pass."""

from __future__ import annotations

from yaie.course.checks.nb08.backward import check_backward, draw_backward
from yaie.course.checks.nb08.forward import check_forward, draw_forward
from yaie.course.checks.nb08.tiles import check_tiles, draw_sorted
from yaie.course.core.manifest import Exercise

NOTEBOOK = "08_flash_attention"

EXERCISES = [
    Exercise(
        id="08.1",
        notebook=NOTEBOOK,
        slug="flash_forward",
        title="Attention, a tile at a time",
        target="yaie.ops.reference.flash:flash_forward",
        task=(
            "For each tile of queries: load it, begin an online softmax, go through the tiles of "
            "keys and values that it may see, finish, store. The file imports what you need: "
            "`heads_first` makes a loaded tile ready to compute, `key_tiles` says which tiles "
            "are seen whole, in part (mask those with `hidden_keys`), or not at all, "
            "`tokens_first` turns a result around before it is stored. Touch q, k, v, out and "
            "lse by slices of tokens only, such as `k[columns]`: that is the traffic that is "
            "counted."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "Two loops: over tiles of queries, and inside over tiles of keys. Between them lives "
            "one OnlineSoftmax: made when a tile of queries begins, fed once for each tile of "
            "keys, finished when they are through.",
            "Query i is at position past + i, with past = key tokens - query tokens. Of the "
            "tiles that `key_tiles` calls whole no score is hidden; of those in part some are; "
            "no others are read. Both loops end with a tile that may be short: slices end at "
            "min(start + tile, number of tokens).",
            "The shape of it:\n"
            "    out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=...)\n"
            "    for q_start in range(0, num_q, tile_q):\n"
            "        rows = slice(q_start, min(...))\n"
            "        positions = range(past + rows.start, past + rows.stop)\n"
            "        queries = heads_first(q[rows], num_heads)        # [heads, rows, dim]\n"
            "        state = OnlineSoftmax.empty(queries.shape[:2], head_dim, like=queries)\n"
            "        whole, seen = key_tiles(positions[0], positions[-1], num_k, ...)\n"
            "        for tile in range(seen):\n"
            "            columns = slice(tile * tile_k, min(...))\n"
            "            keys, values = ...                           # as the queries\n"
            "            scores = queries @ keys.mT * scale\n"
            "            if tile >= whole: scores.masked_fill_(hidden_keys(...), -inf)\n"
            "            state.update(...)\n"
            "        tile_out, tile_lse = state.finish()\n"
            "        out[rows] = tokens_first(tile_out, num_heads)\n"
            "        lse[rows] = tile_lse.T",
        ),
        proves=(
            "It agrees with a float64 oracle at 60 shapes whose last tiles are short, stores no "
            "more scores than a tile has, and computes no tile that is hidden."
        ),
        check=check_forward,
        picture=draw_forward,
    ),
    Exercise(
        id="08.2",
        notebook=NOTEBOOK,
        slug="key_tiles",
        title="Which tiles a causal mask leaves",
        target="yaie.ops.reference.flash:key_tiles",
        task=(
            "A tile of queries is at the positions `first` to `last`, and tile j of the keys at "
            "j * tile_k and after. Count the tiles that every query sees whole, and the tiles of "
            "which some query sees something. Both are a matter of one division."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "The first query sees least, the last query most. So the first decides how many "
            "tiles are whole, the last how many are seen at all.",
            "A query at position p sees p + 1 keys, 0 to p. Whole tiles: as many as fit into "
            "what the first sees (rounded down). Tiles seen: as many as it takes to hold what the "
            "last sees (rounded up). A query at a negative position sees 0 keys. And where the "
            "first query sees all keys, the last tile is whole too, however short it is.",
            "    num_tiles = -(-num_k // tile_k)              # rounded up\n"
            "    if not causal or first >= ...: return num_tiles, num_tiles\n"
            "    return max(0, ...) // tile_k, -(-max(0, ...) // tile_k)",
        ),
        proves=(
            "For every tile of 0 to 17 keys, and every range of positions, it says what the mask "
            "itself says."
        ),
        check=check_tiles,
        picture=draw_sorted,
    ),
    Exercise(
        id="08.3",
        notebook=NOTEBOOK,
        slug="flash_backward",
        title="The backward pass, recomputed",
        target="yaie.ops.reference.flash:flash_backward",
        task=(
            "The gradients of q, k and v, by the same two loops as the forward pass. Each tile of "
            "weights is computed again, exp(scores - lse), and needs no running maximum: the "
            "log-sum-exp is final. The formulas are in the docstring. A tile of keys is met by "
            "several tiles of queries, and a KV head by several query heads: their gradients add "
            "up (`tokens_first` with fewer heads adds the heads of a group)."
        ),
        difficulty=3,
        minutes=35,
        hints=(
            "Keep the loops of 08.1. In place of the online softmax there is one sum for each "
            "tile of queries, its gradient; the gradients of keys and values are sums in memory, "
            "to which each tile adds its part.",
            "scores = q kᵀ · scale, so both products with dS carry the scale. dS = P ∘ (dP - "
            "delta) has rows that add up to 0: a softmax does not change when all scores of a row "
            "go up together. Where a row saw nothing, lse is -inf: subtract `finite(lse)`.",
            "Inside the loops, with queries, grads, keys, values [heads, tokens, dim] and row_lse, "
            "row_delta [heads, rows, 1] (`lse[rows].T.unsqueeze(-1)`):\n"
            "    scores = queries @ keys.mT * scale           # masked as before\n"
            "    weights = (scores - finite(row_lse)).exp()\n"
            "    grad_scores = weights * (grads @ ... - row_delta) * scale\n"
            "    grad_queries += grad_scores @ ...\n"
            "    grad_k[columns] += tokens_first(grad_scores.mT @ ..., num_kv_heads)\n"
            "    grad_v[columns] += tokens_first(weights.mT @ ..., num_kv_heads)",
        ),
        proves=(
            "Its gradients are those that autograd finds for a dense attention in float64, for "
            "grouped heads, with a past, and where rows see nothing."
        ),
        check=check_backward,
        picture=draw_backward,
    ),
]
