"""01.2: the rotation of queries and keys, against a product of complex numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer, dtype_name
from yaie.course.exercises import oracles
from yaie.course.exercises.nb01.oracle import tables

BASE = 10000.0

# positions, heads, head_dim
SHAPES = [
    ([0, 1, 2], 1, 4),
    ([0, 1, 2], 3, 4),  # as many heads as tokens: a wrong broadcast does not even raise
    ([5, 6, 7, 8], 2, 8),  # a past of five tokens
    ([7], 9, 64),  # a decode step
    ([3, 0, 11, 3], 3, 6),  # a batch of several sequences, flattened
    ([0, 0], 1, 2),
]


def cases() -> Iterator[Case]:
    new = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    for positions, heads, dim in SHAPES:
        yield case(new(len(positions), heads, dim), positions)
    far = [0, 4000, 8190, 8191]
    smollm = "float32, with the tables of SmolLM2-135M"
    yield case(new(4, 3, 64), far, room=8192, base=100000.0, kind=smollm)
    middle = list(range(90, 130))
    for dtype in (torch.float16, torch.bfloat16):
        yield case(new(len(middle), 2, 16).to(dtype), middle, room=200)
    drawn = random.Random(0)
    for _ in range(60):
        positions = [drawn.randrange(200) for _ in range(drawn.randint(1, 7))]
        heads, dim = drawn.randint(1, 5), 2 * drawn.randint(1, 9)
        yield case(new(len(positions), heads, dim), positions)


def case(x: Any, positions: list[int], room: int = 0, base: float = BASE, kind: str = "") -> Case:
    heads = f"{x.shape[1]} {'head' if x.shape[1] == 1 else 'heads'} of {x.shape[2]}"
    where = positions if len(positions) < 20 else f"{positions[0]} to {positions[-1]}"
    name = f"apply_rotary at positions {where}, {heads}, {kind or dtype_name(x)}"
    return Case(name, x=x, positions=positions, room=room or max(positions) + 8, base=base)


def observe(apply_rotary: Callable[..., Any], case: Case, see: Observer) -> None:
    x = case.x.clone()
    cos, sin = tables(x.shape[2], case.room, case.base)
    with see.call("the call"):
        got = apply_rotary(x, torch.tensor(case.positions), cos, sin)
    see.equal("x after the call", x, case.x, "Leave the argument as it is.")
    want = oracles.rotary(case.x, case.positions, case.base)
    pairs = (
        f"Components i and i + {x.shape[2] // 2} are the coordinates of a point, which turns by "
        "the angle of the token's position."
    )
    if x.dtype == torch.float32:
        see.close("the result", got, want.float(), pairs)
        return
    see.equal("the result's dtype", getattr(got, "dtype", None), x.dtype, "It is that of x.")
    once = "Only the last rounding may be seen: the tables stay in float32."
    step = torch.finfo(x.dtype).eps
    see.close("the result", got.double(), want, once, rtol=0.6 * step, atol=1e-6)


def draw(apply_rotary: Callable[..., Any]) -> Any:
    """The learner's rotation of a vector whose pairs all lie at (1, 0): cosines and sines."""
    dim, count = 64, 64
    x = torch.zeros(count, 1, dim)
    x[..., : dim // 2] = 1.0
    turned = apply_rotary(x, torch.arange(count), *tables(dim, count, 100000.0))[:, 0]
    return viz.draw_rotary(turned[:, : dim // 2], turned[:, dim // 2 :])
