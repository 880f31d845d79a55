"""09.1: the operations and bytes that `linear_work` and `decode_attention_work` count."""

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.data_nb09 import kept
from yaie.course.lessons.roofline import Work


def cases() -> Iterator[Case]:
    """Each is one call, so its arguments are all that a message has to name."""
    yield Case("", function="linear_work", arguments=(3, 4, 5, 2))
    yield Case("", function="linear_work", arguments=(3, 4, 5, 4))
    yield Case("", function="decode_attention_work", arguments=(3, 7, 10, 2, 8, 2))
    generator = random.Random(0)
    for _ in range(40):
        sizes = [generator.randint(1, 6) for _ in range(3)]
        yield Case("", function="linear_work", arguments=(*sizes, generator.choice([1, 2, 4, 8])))
        batch, context, kv_heads, group, dim = (generator.randint(1, 4) for _ in range(5))
        shape = (batch, context, kv_heads * group, kv_heads, dim, generator.choice([1, 2, 4]))
        yield Case("", function="decode_attention_work", arguments=shape)
    yield Case("", function="linear_work", arguments=(1, 4096, 14336, 2))


def observe(learner: Any, case: Case, see: Observer) -> None:
    call = f"{case.function}{case.arguments}"
    with see.call(call):
        work = getattr(learner, case.function)(*case.arguments)
    see.kind(call, work, Work)
    counted = linear if case.function == "linear_work" else attention
    flops, numbers, why_flops, why_bytes = counted(*case.arguments[:-1])
    itemsize = case.arguments[-1]
    moved = f"{why_bytes}: {numbers:,} numbers of {itemsize} bytes."
    see.equal(f"flops of {call}", work.flops, flops, why_flops)
    see.equal(f"num_bytes of {call}", work.num_bytes, numbers * itemsize, moved)
    for name in ("flops", "num_bytes"):
        got = getattr(work, name)
        counts = "Operations and bytes are counted, so both are ints; `/` makes a float."
        see.true(f"{name} of {call}", type(got) is int, f"is {got!r}, expected an int", counts)


def linear(tokens: int, inputs: int, outputs: int) -> tuple[int, int, str, str]:
    """Operations and different numbers of a linear layer, counted one by one, and why."""
    why = (
        f"Each of {tokens} tokens is multiplied with each of {inputs} × {outputs} weights, and "
        "the products are added up.",
        f"{inputs * outputs} weights and {tokens} rows of {inputs} are read, {tokens} rows of "
        f"{outputs} are written",
    )
    if inputs == 4096:  # a layer of Llama-3.1-8B, too many to count here
        return 117_440_512, 58_738_688, *why
    flops, touched = 0, set()
    for token, i, o in product(range(tokens), range(inputs), range(outputs)):
        flops += 2
        touched |= {("weight", i, o), ("input", token, i), ("output", token, o)}
    return flops, len(touched), *why


def attention(
    batch: int, context: int, heads: int, kv_heads: int, dim: int
) -> tuple[int, int, str, str]:
    """The same for the attention of a decode step."""
    flops, touched = 0, set()
    everything = product(range(batch), range(context), range(heads), range(dim))
    for sequence, token, head, component in everything:
        flops += 4
        kv_head = head // (heads // kv_heads)
        touched |= {
            ("key", sequence, token, kv_head, component),
            ("value", sequence, token, kv_head, component),
            ("query", sequence, head, component),
            ("output", sequence, head, component),
        }
    return (
        flops,
        len(touched),
        f"{batch} sequences × {context} tokens × {heads} heads × {dim} components, each with a "
        "multiplication and an addition in q · k, and the same in weights × v.",
        f"Keys and values are 2 × {batch} × {context} × {kv_heads} × {dim} numbers, queries and "
        f"outputs 2 × {batch} × {heads} × {dim}",
    )


def draw(learner: Any) -> Any:
    """A layer of Llama-3.1-8B under the roof of an H200, as the batch grows."""
    points = []
    for batch in (1, 4, 16, 64, 256):
        linear = learner.linear_work(batch, 4096, 14336)
        points.append(viz.Point(f"linear, batch {batch}", linear.intensity, group="linear layer"))
    cache = learner.decode_attention_work(1, 4096, 32, 8, 128)
    name, group = "attention at any batch", "decode attention"
    points.insert(1, viz.Point(name, cache.intensity, group=group))
    return viz.draw_roofline(
        [kept().roof], points, "decode in Llama-3.1-8B: 4096 → 14336, context 4,096"
    )
