"""Which part of a model each rank holds: tensor parallelism, as arithmetic.

Of `size` processes, numbered by rank from 0, each holds a part of every matrix and computes with
it on all tokens. A matrix is split in one of two ways (Shoeybi et al., "Megatron-LM", 2019). Split
by its outputs, *column-parallel*, it gives every rank some of the columns of the result. Split by
its inputs, *row-parallel*, it takes exactly that, and gives every rank a summand of the result:
the sum over the ranks, an all-reduce, is all that has to be sent. (The names come from x @ W; a
checkpoint stores W transposed, `[out, in]`.) Norms and the embedding are small, or only looked up:
every rank has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from yaie.model.config import ModelConfig


@dataclass(frozen=True)
class Shard:
    """The part of a model that one of `size` ranks holds."""

    rank: int = 0
    size: int = 1

    def check(self, config: ModelConfig) -> None:
        """Raise ValueError if the model cannot be split into this many parts."""
        for name in ("num_attention_heads", "intermediate_size", "vocab_size"):
            count = getattr(config, name)
            if count % self.size:
                raise ValueError(
                    f"tensor_parallel_size must divide the model's {name}, {count}, got {self.size}"
                )
        kv_heads = config.num_key_value_heads
        if kv_heads % self.size and self.size % kv_heads:
            raise ValueError(
                "tensor_parallel_size must divide the model's num_key_value_heads, "
                f"{kv_heads}, or be a multiple of it, got {self.size}"
            )

    def narrow(self, config: ModelConfig) -> ModelConfig:
        """The model of one rank: as deep, and with hidden states as wide, but of fewer heads and
        with a narrower MLP. The vocabulary stays, since the rank gets all logits in the end."""
        self.check(config)
        return replace(
            config,
            num_attention_heads=config.num_attention_heads // self.size,
            num_key_value_heads=max(1, config.num_key_value_heads // self.size),
            intermediate_size=config.intermediate_size // self.size,
        )


WHOLE = Shard()


def part(count: int, rank: int, size: int) -> slice:
    """The rank-th of `size` equal, contiguous parts of `count` things."""
    each = count // size
    return slice(rank * each, (rank + 1) * each)


def heads_of(rank: int, size: int, num_heads: int, num_kv_heads: int) -> tuple[range, range]:
    """Which query heads and which KV heads a rank computes.

    Query head h attends to the keys and values of KV head `h // (num_heads // num_kv_heads)`. The
    ranks take the query heads in order, equally many each, and with them the KV heads that these
    need and no other. So the ranks share out the KV heads if there are enough; if there are fewer
    KV heads than ranks, several ranks hold a copy of the same one.

    Args:
        rank, size: which of how many.
        num_heads, num_kv_heads: of the whole model. `size` divides num_heads; it divides
            num_kv_heads or is a multiple of it.

    Returns:
        (query heads, KV heads), each a `range`.
    """
    each = num_heads // size
    group = num_heads // num_kv_heads
    first, last = rank * each, (rank + 1) * each - 1
    return range(first, last + 1), range(first // group, last // group + 1)


def piece_of(
    name: str, shape: Sequence[int], config: ModelConfig, rank: int, size: int
) -> tuple[slice, ...]:
    """Which part of a tensor of the checkpoint a rank loads: a slice for each dimension.

    - `q_proj`, `k_proj`, `v_proj`: the rows of the rank's heads (`heads_of`), `head_dim` rows a
      head. A bias, if there is one, has one dimension and is split in the same way.
    - `o_proj`: its inputs are the heads' outputs, so the columns of the rank's query heads.
    - `gate_proj`, `up_proj`: an equal part of the rows. `down_proj`: the same part of its columns.
    - `lm_head`: an equal part of the rows, which are tokens of the vocabulary.
    - everything else, norms and embedding: all of it.

    Args:
        name: such as "model.layers.3.self_attn.q_proj.weight", or "lm_head.weight".
        shape: of the whole tensor; a weight is `[out, in]`.
        config: of the whole model.
        rank, size: which of how many. The sizes divide as `heads_of` demands.

    Returns:
        As many slices as `shape` has numbers; `tensor[slices]` is the part.
    """
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
