"""The check of heads_of and piece_of."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from yaie.course.core.expect import equal, fail, given, true

SHARE = "The ranks take the query heads in order, equally many each."
NEED = "A rank holds the KV heads that its query heads attend to, and no other."


@dataclass(frozen=True)
class Sizes:
    """What `piece_of` reads of a configuration."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int


SMALL = Sizes(8, 2, 4, 24, 20, 40)


def check_heads(learner: Any) -> None:
    heads_by_hand(learner.heads_of)
    heads_at_random(learner.heads_of)
    pieces_by_hand(learner.piece_of)
    for number in range(30):
        put_together(learner.piece_of, random.Random(number))


# ------------------------------------------------------------------------------ heads_of


def heads_by_hand(heads_of: Any) -> None:
    for rank, size, num_heads, num_kv in (
        (0, 1, 9, 3),
        (1, 3, 9, 3),
        (1, 2, 32, 8),
        (2, 4, 8, 2),
        (1, 4, 8, 2),
        (5, 8, 8, 1),
    ):
        ask(heads_of, rank, size, num_heads, num_kv)


def heads_at_random(heads_of: Any) -> None:
    rng = random.Random(0)
    for _ in range(60):
        num_kv, group = rng.randint(1, 8), rng.randint(1, 6)
        num_heads = num_kv * group
        fits = [
            s
            for s in range(1, num_heads + 1)
            if num_heads % s == 0 and (num_kv % s == 0 or s % num_kv == 0)
        ]
        size = rng.choice(fits)
        ask(heads_of, rng.randrange(size), size, num_heads, num_kv)


def ask(heads_of: Any, rank: int, size: int, num_heads: int, num_kv: int) -> None:
    what = f"heads_of(rank={rank}, size={size}, num_heads={num_heads}, num_kv_heads={num_kv})"
    zero = {ZeroDivisionError: f"There may be fewer KV heads than ranks, here {num_kv} for {size}."}
    with given(what, errors=zero):
        got = heads_of(rank, size, num_heads, num_kv)
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"{what} is {got!r}, expected (query heads, KV heads)")
    queries, keys = map(list, got)
    each, group = num_heads // size, num_heads // num_kv
    own = [h for h in range(num_heads) if rank * each <= h < (rank + 1) * each]
    equal(
        queries,
        own,
        f"{what}: the range of query heads",
        because=SHARE,
        mistakes=[
            (
                list(range(rank, num_heads, size)),
                f"That is every {size}th head. {SHARE} So that heads that share a KV head stay "
                "together.",
            )
        ],
    )
    want = sorted({h // group for h in own})
    share = num_kv // size
    equal(
        keys,
        want,
        f"{what}: the range of KV heads",
        because=f"Query head h attends to KV head h // {group}. {NEED}",
        mistakes=[
            (
                [],
                f"{num_kv} // {size} is 0: with fewer KV heads than ranks, several ranks hold a "
                f"copy of the same one. {NEED}",
            ),
            (
                list(range(num_kv)),
                "Every rank would hold the whole cache, and its memory would not be shared. "
                f"{NEED}",
            ),
            (
                [rank % num_kv],
                f"KV head {rank % num_kv} is not the one that query heads {own[0]} to {own[-1]} "
                f"attend to: that is h // {group}.",
            ),
            (list(range(rank, num_kv, size)), f"That is every {size}th KV head. {NEED}"),
            (
                list(range(rank * max(1, share), (rank + 1) * max(1, share))),
                f"Count KV heads from the query heads: h // {group}. {NEED}",
            ),
        ],
    )


# ------------------------------------------------------------------------------ piece_of


def shapes(c: Sizes) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint."""
    q, k = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    layer = {
        "self_attn.q_proj.weight": (q, c.hidden_size),
        "self_attn.q_proj.bias": (q,),
        "self_attn.k_proj.weight": (k, c.hidden_size),
        "self_attn.k_proj.bias": (k,),
        "self_attn.v_proj.weight": (k, c.hidden_size),
        "self_attn.v_proj.bias": (k,),
        "self_attn.o_proj.weight": (c.hidden_size, q),
        "mlp.gate_proj.weight": (c.intermediate_size, c.hidden_size),
        "mlp.up_proj.weight": (c.intermediate_size, c.hidden_size),
        "mlp.down_proj.weight": (c.hidden_size, c.intermediate_size),
        "input_layernorm.weight": (c.hidden_size,),
        "post_attention_layernorm.weight": (c.hidden_size,),
    }
    return {f"model.layers.3.{name}": shape for name, shape in layer.items()} | {
        "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
        "model.norm.weight": (c.hidden_size,),
        "lm_head.weight": (c.vocab_size, c.hidden_size),
    }


def wanted(name: str, shape: tuple[int, ...], c: Sizes, rank: int, size: int) -> list[list[int]]:
    """Which rows and columns, one by one."""
    group = c.num_attention_heads // c.num_key_value_heads
    mine = [h for h in range(c.num_attention_heads) if h * size // c.num_attention_heads == rank]
    kv = {h // group for h in mine}
    rule = {"q": (0, set(mine)), "k": (0, kv), "v": (0, kv), "o": (1, set(mine))}
    axis, heads = rule.get(name.split(".")[-2].removesuffix("_proj"), (None, set()))
    piece = [list(range(n)) for n in shape]
    if axis is not None:
        piece[axis] = [i for i in piece[axis] if i // c.head_dim in heads]
    for word, axis in (("gate", 0), ("up", 0), ("lm_head", 0), ("down", 1)):
        if f".{word}_proj." in name or name.startswith(word):
            piece[axis] = [i for i in piece[axis] if i * size // shape[axis] == rank]
    return piece


def pieces_by_hand(piece_of: Any) -> None:
    every = shapes(SMALL)
    layer = "model.layers.3."
    first = [
        *(f"{layer}self_attn.{n}" for n in ("q_proj.weight", "k_proj.weight", "o_proj.weight")),
        *(f"{layer}mlp.{n}" for n in ("gate_proj.weight", "down_proj.weight")),
        f"{layer}self_attn.q_proj.bias",
    ]
    for name in (*first, *(n for n in every if n not in first)):
        for rank, size in ((1, 2), (1, 4)):
            tell(piece_of, name, every[name], SMALL, rank, size)


def put_together(piece_of: Any, rng: random.Random) -> None:
    num_kv, group = rng.randint(1, 4), rng.randint(1, 3)
    fits = [
        s
        for s in range(1, num_kv * group + 1)
        if num_kv * group % s == 0 and (num_kv % s == 0 or s % num_kv == 0)
    ]
    size = rng.choice(fits)
    each = 2 * rng.randint(1, 3)
    c = Sizes(num_kv * group, num_kv, each, rng.randint(5, 20), 3 * size, 5 * size)
    for name, shape in shapes(c).items():
        tell(piece_of, name, shape, c, rng.randrange(size), size)


def tell(piece_of: Any, name: str, shape: tuple[int, ...], c: Sizes, rank: int, size: int) -> None:
    heads = f"{c.num_attention_heads} heads, {c.num_key_value_heads} KV heads of {c.head_dim}"
    what = f'piece_of("{name}", {list(shape)}), rank {rank} of {size}; {heads}'
    one = "A bias and a norm's weight have one dimension: one slice."
    with given(what, errors={IndexError: one}):
        got = piece_of(name, shape, c, rank, size)
    true(
        isinstance(got, tuple) and all(isinstance(part, slice) for part in got),
        f"{what} is {got!r}, expected a tuple of slices",
    )
    true(
        len(got) == len(shape),
        f"{what} has {len(got)} slices for {len(shape)} dimensions. {one}",
    )
    pairs = list(zip(got, shape, strict=True))
    numbers = [list(range(*part.indices(count))) for part, count in pairs]
    want = wanted(name, shape, c, rank, size)
    if numbers == want:
        return
    because = explain(name, numbers, want, c, rank, size)
    fail(f"{what} is {in_brackets(numbers)}, expected {in_brackets(want)}. {because}")


def in_brackets(piece: list[list[int]]) -> str:
    """As one would index with it, such as [4:8, 0:24]."""
    ranges = [
        f"{n[0]}:{n[-1] + 1}" if n and n == list(range(n[0], n[-1] + 1)) else str(n) for n in piece
    ]
    return f"[{', '.join(ranges)}]"


def explain(
    name: str, got: list[list[int]], want: list[list[int]], c: Sizes, rank: int, size: int
) -> str:
    """The mistake that it looks like."""
    layer = name.split(".")[-2]
    whole = [len(got[axis]) for axis in range(len(got))]
    axis = next((a for a in range(len(want)) if got[a] != want[a]), 0)
    if layer in ("embed_tokens", "norm", "input_layernorm", "post_attention_layernorm"):
        return (
            "Every rank needs all of it: the embedding is looked up for any token, and a norm is "
            "taken over the whole hidden state, which all ranks have."
        )
    if layer in ("o_proj", "down_proj") and got[1] == list(range(len(got[1]))):
        return (
            "Rows are outputs. This layer's inputs are what the ranks share out: columns, so that "
            "each rank's product is a summand."
        )
    if len(want) > 1 and axis == 0 and got[0] == list(range(whole[0])) and got[1] != want[1]:
        return "Columns are inputs, and every rank has all inputs of this layer: split its rows."
    if layer in ("q_proj", "k_proj", "v_proj", "o_proj"):
        heads = [i // c.head_dim for i in want[axis]]
        by_heads = list(range(heads[0], heads[-1] + 1))
        if got[axis] == by_heads:
            return f"These are numbers of heads. A head has {c.head_dim} rows: head_dim."
        count = c.num_key_value_heads if layer[0] in "kv" else c.num_attention_heads
        each = count * c.head_dim // size
        if got[axis] == list(range(rank * each, (rank + 1) * each)):
            return (
                f"An equal part of the rows cuts a head of {c.head_dim} into pieces. With fewer KV "
                "heads than ranks, a rank loads a whole one, as others do."
            )
        if layer[0] in "kv":
            return (
                "Keys and values have KV heads, not query heads: take the second of the two that "
                "heads_of returns."
            )
        return f"The rank has heads {by_heads[0]} to {by_heads[-1]}, {c.head_dim} rows each."
    return "The parts are equal and contiguous: rank 0 has the first one, rank 1 the next."


def draw_heads(learner: Any) -> Any:
    """Eight query heads and two KV heads on two, four and eight ranks."""
    from yaie.course.viz.film import film_strip
    from yaie.course.viz.parallel import HeadShares, draw_head_shares

    def shares(size: int) -> HeadShares:
        return HeadShares(8, 2, [learner.heads_of(rank, size, 8, 2) for rank in range(size)])

    return film_strip(
        [shares(2), shares(4)],
        draw_head_shares,
        ["2 ranks: a KV head each", "4 ranks: two copies of each KV head"],
    )
