"""Takes numbers of heads for numbers of rows."""

from yaie.model.shards import part

EXPECT = "These are numbers of heads"


def heads_of(rank, size, num_heads, num_kv_heads):
    each, group = num_heads // size, num_heads // num_kv_heads
    first, last = rank * each, (rank + 1) * each - 1
    return range(first, last + 1), range(first // group, last // group + 1)


def piece_of(name, shape, config, rank, size):
    layer = name.split(".")[-2]
    queries, keys = heads_of(rank, size, config.num_attention_heads, config.num_key_value_heads)
    heads = keys if layer in ("k_proj", "v_proj") else queries
    of_heads = slice(heads.start, heads.stop)
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
