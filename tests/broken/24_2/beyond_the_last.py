"""At least one KV head for each rank, beyond the last if need be."""

from yaie.model.shards import part

EXPECT = "Count KV heads from the query heads"


def heads_of(rank, size, num_heads, num_kv_heads):
    each, kv = num_heads // size, max(1, num_kv_heads // size)
    return range(rank * each, (rank + 1) * each), range(rank * kv, (rank + 1) * kv)


def piece_of(name, shape, config, rank, size):
    layer = name.split(".")[-2]
    queries, keys = heads_of(rank, size, config.num_attention_heads, config.num_key_value_heads)
    heads = keys if layer in ("k_proj", "v_proj") else queries
    of_heads = slice(heads.start * config.head_dim, heads.stop * config.head_dim)
    piece = [slice(0, count) for count in shape]
    if layer in ("q_proj", "k_proj", "v_proj"):
        piece[0] = of_heads
    elif layer == "o_proj":
        piece[1] = of_heads
    elif layer in ("gate_proj", "up_proj", "lm_head"):
        piece[0] = part(shape[0], rank, size)
    elif layer == "down_proj":
        piece[1] = part(shape[1], rank, size)
    return tuple(piece)
