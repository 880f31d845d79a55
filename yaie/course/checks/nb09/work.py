"""The check of linear_work and decode_attention_work."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

from yaie.course.core.expect import equal, fail, given, short

NO_WORK = "Return `Work(flops, num_bytes)`: the class is imported at the top of your file."


def check_work(learner: Any) -> None:
    linear_by_hand(learner.linear_work)
    attention_by_hand(learner.decode_attention_work)
    rng = random.Random(0)
    for _ in range(40):
        linear_at_random(learner.linear_work, rng)
        attention_at_random(learner.decode_attention_work, rng)
    linear_of_a_model(learner.linear_work)


# ------------------------------------------------------------------------------------- by hand


def linear_by_hand(linear_work: Any) -> None:
    tokens, inputs, outputs = 3, 4, 5
    work = ask(linear_work, "linear_work", (tokens, inputs, outputs, 2))
    equal(
        work.flops,
        120,
        "flops of linear_work(3, 4, 5)",
        because="Each of 3 tokens is multiplied with each of 4 × 5 weights, and the products are "
        "added up.",
        mistakes=[
            (60, "A multiplication and the addition of its product are two operations."),
            (40, "Every token is multiplied with every weight: there are 3 tokens."),
            (20, "Every token is multiplied with every weight, and each product is added."),
        ],
    )
    equal(
        work.num_bytes,
        94,
        "num_bytes of linear_work(3, 4, 5, itemsize=2)",
        because="20 weights and 3 rows of 4 are read, 3 rows of 5 are written: 47 numbers of 2 "
        "bytes.",
        mistakes=[
            (
                174,
                "That reads the weights once for each of the 3 tokens. The tokens of a batch "
                "share them: one read serves all.",
            ),
            (40, "The weights are counted. Inputs must be read too, and outputs written."),
            (64, "The outputs must be written to memory too."),
            (70, "The inputs must be read from memory too."),
            (54, "The weights must be read, too: they are the largest part in a real model."),
            (47, "That is how many numbers move. Each has `itemsize` bytes."),
            (752, "That is in bits: `itemsize` is in bytes already."),
            (188, "That is 4 bytes a number, but `itemsize` is 2."),
        ],
    )
    wide = ask(linear_work, "linear_work", (tokens, inputs, outputs, 4))
    equal(
        wide.num_bytes,
        188,
        "num_bytes of linear_work(3, 4, 5, itemsize=4)",
        because="47 numbers of 4 bytes.",
        mistakes=[(94, "It is the same as for `itemsize=2`: use the argument.")],
    )
    equal(
        wide.flops,
        120,
        "flops of linear_work(3, 4, 5, itemsize=4)",
        because="How wide a number is does not change how many operations there are.",
    )


def attention_by_hand(decode_attention_work: Any) -> None:
    arguments = (3, 7, 10, 2, 8, 2)
    call = "decode_attention_work(batch=3, context=7, num_heads=10, num_kv_heads=2, head_dim=8)"
    work = ask(decode_attention_work, "decode_attention_work", arguments)
    equal(
        work.flops,
        6720,
        f"flops of {call}",
        because="3 sequences × 7 tokens × 10 heads × 8 components, and for each component a "
        "multiplication and an addition in q · k, and the same in weights × v: 4 operations.",
        mistakes=[
            (3360, "q · k and weights × v are two products: only one of them is counted, or "
                   "multiplications without their additions."),
            (1680, "For each component there are 4 operations: a multiplication and an addition, "
                   "in q · k and again in weights × v."),
            (1344, "Every one of the 10 query heads does its own products, though they share keys "
                   "and values."),
            (2240, "There are 3 sequences, each with a query of its own."),
            (20160, "The batch is counted twice: a query sees the cache of its own sequence only."),
        ],
    )  # fmt: skip
    equal(
        work.num_bytes,
        2304,
        f"num_bytes of {call}, itemsize=2",
        because="Keys and values are 2 × 3 × 7 × 2 × 8 numbers, queries and outputs 2 × 3 × 10 × "
        "8: 1152 numbers of 2 bytes.",
        mistakes=[
            (
                7680,
                "That reads keys and values once for each query head. There are only "
                "num_kv_heads = 2 of them to read; the 5 query heads of a group share one.",
            ),
            (1632, "A cache has keys and values: both are read."),
            (1344, "Keys and values are counted. The queries must be read too, and the outputs "
                   "written."),
            (1824, "Queries are read and outputs written: both move 3 × 10 × 8 numbers."),
            (1536, "The queries have num_heads heads, not num_kv_heads."),
            (1408, "Every sequence has a cache of its own: the 3 sequences of the batch share no "
                   "keys and values."),
            (1152, "That is how many numbers move. Each has `itemsize` bytes."),
            (18432, "That is in bits: `itemsize` is in bytes already."),
            (4608, "That is 4 bytes a number, but `itemsize` is 2."),
        ],
    )  # fmt: skip


def linear_of_a_model(linear_work: Any) -> None:
    work = ask(linear_work, "linear_work", (1, 4096, 14336, 2))
    equal(
        (work.flops, work.num_bytes),
        (117_440_512, 117_477_376),
        "(flops, num_bytes) of linear_work(1, 4096, 14336), a layer of Llama-3.1-8B",
        because="58.7 million weights, each read once and used in two operations.",
    )


# ------------------------------------------------------------------------------------- counted


def linear_at_random(linear_work: Any, rng: random.Random) -> None:
    tokens, inputs, outputs = (rng.randint(1, 6) for _ in range(3))
    itemsize = rng.choice([1, 2, 4, 8])
    flops, touched = 0, set()
    for token, i, o in product(range(tokens), range(inputs), range(outputs)):
        flops += 2
        touched |= {("weight", i, o), ("input", token, i), ("output", token, o)}
    compare(linear_work, "linear_work", (tokens, inputs, outputs, itemsize), flops, touched)


def attention_at_random(decode_attention_work: Any, rng: random.Random) -> None:
    batch, context, kv_heads, group, dim = (rng.randint(1, 4) for _ in range(5))
    itemsize = rng.choice([1, 2, 4])
    flops, touched = 0, set()
    everything = product(range(batch), range(context), range(kv_heads * group), range(dim))
    for sequence, token, head, component in everything:
        flops += 4
        touched |= {
            ("key", sequence, token, head // group, component),
            ("value", sequence, token, head // group, component),
            ("query", sequence, head, component),
            ("output", sequence, head, component),
        }
    arguments = (batch, context, kv_heads * group, kv_heads, dim, itemsize)
    compare(decode_attention_work, "decode_attention_work", arguments, flops, touched)


def compare(function: Any, name: str, arguments: tuple, flops: int, touched: set) -> None:
    work, call = ask(function, name, arguments), f"{name}{arguments}"
    equal(work.flops, flops, f"flops of {call}", because="Counted one by one in a loop.")
    equal(
        work.num_bytes,
        len(touched) * arguments[-1],
        f"num_bytes of {call}",
        because=f"A loop that does every operation touches {len(touched)} different numbers.",
    )


def ask(function: Any, name: str, arguments: tuple) -> Any:
    from yaie.course.lessons.roofline import Work

    call = f"{name}{arguments}"
    with given(call):
        work = function(*arguments)
    if not isinstance(work, Work):
        fail(f"{call} returned {short(work)}. {NO_WORK}")
    return work


# ------------------------------------------------------------------------------------- picture


def draw_work(learner: Any) -> Any:
    """A layer of Llama-3.1-8B under the roof of an H200, as the batch grows."""
    from yaie.course.lessons.data_nb09 import kept
    from yaie.course.viz.roofline import Point, draw_roofline

    points = []
    for batch in (1, 4, 16, 64, 256):
        linear = learner.linear_work(batch, 4096, 14336)
        cache = learner.decode_attention_work(batch, 4096, 32, 8, 128)
        points.append(Point(f"linear, batch {batch}", linear.intensity, group="linear layer"))
        if batch == 1:
            points.append(
                Point("attention at any batch", cache.intensity, group="decode attention")
            )
    return draw_roofline(
        [kept().roof], points, "decode in Llama-3.1-8B: 4096 → 14336, context 4,096"
    )
