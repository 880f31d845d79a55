"""29.2: which heads a rank computes, and which part of each tensor of a checkpoint it loads."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaie.course import viz
from yaie.course.core.compare import short
from yaie.course.core.observe import Case, Observer


@dataclass(frozen=True)
class Sizes:
    """What `piece_of` reads of a configuration."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int

    def __str__(self) -> str:
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        return f"{heads} heads, {keys} KV heads of {self.head_dim}"


# Rank, ranks, query heads, KV heads.
PLANNED = ((0, 1, 9, 3), (1, 3, 9, 3), (1, 2, 32, 8), (2, 4, 8, 2), (1, 4, 8, 2), (5, 8, 8, 1))
SMALL = Sizes(8, 2, 6, 24, 20, 40)


def cases() -> Iterator[Case]:
    yield from (split_of_heads(*heads) for heads in PLANNED)
    generator = random.Random(0)
    for _ in range(60):
        num_kv, group = generator.randint(1, 8), generator.randint(1, 6)
        size = generator.choice(sizes_that_fit(num_kv, group))
        yield split_of_heads(generator.randrange(size), size, num_kv * group, num_kv)
    for name in shapes(SMALL):
        for rank, size in ((1, 2), (1, 4)):
            where = f"rank {rank} of {size}, {SMALL}"
            yield Case(where, config=SMALL, asked=[(name, rank)], size=size)
    for number in range(30):
        generator = random.Random(number)
        num_kv, group = generator.randint(1, 4), generator.randint(1, 3)
        size = generator.choice(sizes_that_fit(num_kv, group))
        each = 2 * generator.randint(1, 3)
        config = Sizes(num_kv * group, num_kv, each, generator.randint(5, 20), 3 * size, 5 * size)
        asked = [(name, generator.randrange(size)) for name in shapes(config)]
        yield Case(f"{size} ranks, {config}", config=config, asked=asked, size=size)


def split_of_heads(rank: int, size: int, num_heads: int, num_kv: int) -> Case:
    name = f"rank {rank} of {size}, {num_heads} heads, {num_kv} KV heads"
    return Case(name, config=None, rank=rank, size=size, num_heads=num_heads, num_kv=num_kv)


def sizes_that_fit(num_kv: int, group: int) -> list[int]:
    """The numbers of ranks that divide the heads as `heads_of` demands."""
    fits = [size for size in range(1, num_kv * group + 1) if num_kv * group % size == 0]
    return [size for size in fits if num_kv % size == 0 or size % num_kv == 0]


def shapes(config: Sizes) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint, the most telling first."""
    q, k = (
        count * config.head_dim
        for count in (config.num_attention_heads, config.num_key_value_heads)
    )
    hidden, inner, layer = config.hidden_size, config.intermediate_size, "model.layers.3."
    return {
        f"{layer}self_attn.q_proj.weight": (q, hidden),
        f"{layer}self_attn.k_proj.weight": (k, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, q),
        f"{layer}mlp.gate_proj.weight": (inner, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, inner),
        f"{layer}self_attn.q_proj.bias": (q,),
        f"{layer}self_attn.k_proj.bias": (k,),
        f"{layer}self_attn.v_proj.weight": (k, hidden),
        f"{layer}self_attn.v_proj.bias": (k,),
        f"{layer}mlp.up_proj.weight": (inner, hidden),
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}post_attention_layernorm.weight": (hidden,),
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config.vocab_size, hidden),
    }


def observe(learner: Any, case: Case, see: Observer) -> None:
    if case.config is None:
        observe_heads(see, learner.heads_of, case)
        return
    for name, rank in case.asked:
        observe_piece(see, learner.piece_of, name, case.config, rank, case.size)


def observe_heads(see: Observer, heads_of: Any, case: Case) -> None:
    with see.call("heads_of"):
        got = heads_of(case.rank, case.size, case.num_heads, case.num_kv)
    see.parts("heads_of", got, "query heads", "KV heads")
    for name, heads in zip(("query heads", "KV heads"), got, strict=True):
        problem = f"returned {short(heads)} for the {name}, expected a range"
        see.true("heads_of", isinstance(heads, range), problem)
    see.stop_if_wrong()
    each, group = case.num_heads // case.size, case.num_heads // case.num_kv
    own = [head for head in range(case.num_heads) if head // each == case.rank]
    in_order = f"The ranks take the query heads in order, {each} each."
    see.equal("the range of query heads", list(got[0]), own, in_order)
    attended = sorted({head // group for head in own})
    need = f"Query head h attends to KV head h // {group}, and a rank holds no other."
    see.equal("the range of KV heads", list(got[1]), attended, need)


def observe_piece(
    see: Observer, piece_of: Any, name: str, config: Sizes, rank: int, size: int
) -> None:
    shape = shapes(config)[name]
    call = f'piece_of("{name}", {list(shape)}) of rank {rank}'
    with see.call(call):
        got = piece_of(name, shape, config, rank, size)
    slices = isinstance(got, tuple) and all(isinstance(part, slice) for part in got)
    one = "It returns one slice for each dimension."
    see.require(call, slices, f"is {got!r}, expected a tuple of slices", one)
    if not see.equal(f"the number of slices of {call}", len(got), len(shape), one):
        return
    pairs = zip(got, shape, strict=True)
    numbers = [list(range(*part.indices(count))) for part, count in pairs]
    want, because = wanted(name, shape, config, rank, size)
    problem = f"is {in_brackets(numbers)}, expected {in_brackets(want)}"
    see.note(call, numbers, "" if numbers == want else problem, because)


def wanted(
    name: str, shape: tuple[int, ...], config: Sizes, rank: int, size: int
) -> tuple[list[list[int]], str]:
    """Which rows and columns, one by one; and why."""
    group = config.num_attention_heads // config.num_key_value_heads
    num_heads = config.num_attention_heads
    mine = {head for head in range(num_heads) if head * size // num_heads == rank}
    kv = {head // group for head in mine}
    piece = [list(range(count)) for count in shape]
    rules = {"q": (0, mine), "k": (0, kv), "v": (0, kv), "o": (1, mine)}
    axis, heads = rules.get(name.split(".")[-2].removesuffix("_proj"), (None, set()))
    if axis is not None:
        piece[axis] = [i for i in piece[axis] if i // config.head_dim in heads]
        kind = "KV heads" if heads is kv else "query heads"
        numbers = f"{kind} {min(heads)} to {max(heads)}, {config.head_dim}"
        return piece, f"The rank has {numbers} {('rows', 'columns')[axis]} each."
    for word, axis in (("gate", 0), ("up", 0), ("lm_head", 0), ("down", 1)):
        if f".{word}_proj." in name or name.startswith(word):
            piece[axis] = [i for i in piece[axis] if i * size // shape[axis] == rank]
            what = ("rows, which are its outputs", "columns, which are its inputs")[axis]
            return piece, f"The ranks share the layer's {what}, in order and equally."
    return piece, "Every rank needs all of it."


def in_brackets(piece: list[list[int]]) -> str:
    """As one would index with it, such as [4:8, 0:24]."""
    ranges = [
        f"{n[0]}:{n[-1] + 1}" if n and n == list(range(n[0], n[-1] + 1)) else str(n) for n in piece
    ]
    return f"[{', '.join(ranges)}]"


def draw(learner: Any) -> Any:
    """Eight query heads and two KV heads on two and four ranks."""

    def shares(size: int) -> viz.HeadShares:
        return viz.HeadShares(8, 2, [learner.heads_of(rank, size, 8, 2) for rank in range(size)])

    captions = ["2 ranks: a KV head each", "4 ranks: two copies of each KV head"]
    return viz.film_strip([shares(2), shares(4)], viz.draw_head_shares, captions)
