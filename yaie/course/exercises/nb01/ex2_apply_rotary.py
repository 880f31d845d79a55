"""01.2: the rotation of queries and keys, against a product of complex numbers."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises import oracles
from yaie.course.exercises.nb01.oracle import tables

BASE = 10000.0
QUARTERS = torch.tensor([1.0, 2.0, 3.0]).double() * math.pi / 2  # exact in any dtype, and by hand

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
    quarters = "float32, with tables of quarter turns"
    axis, two = torch.tensor([[[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]]), torch.arange(12.0).view(2, 1, 6)
    yield case(axis, [0], kind=quarters, frequencies=QUARTERS)
    yield case(two, [0, 1], kind=quarters, frequencies=QUARTERS)
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


def case(
    x: Any,
    positions: list[int],
    room: int = 0,
    base: float = BASE,
    kind: str = "",
    frequencies: Any = None,
) -> Case:
    heads = f"{x.shape[1]} {'head' if x.shape[1] == 1 else 'heads'} of {x.shape[2]}"
    where = positions if len(positions) < 20 else f"{positions[0]} to {positions[-1]}"
    name = f"apply_rotary at positions {where}, {heads}, {kind or dtype_name(x)}"
    room = room or max(positions) + 8
    return Case(name, x=x, positions=positions, room=room, angles=(base, frequencies))


def observe(apply_rotary: Callable[..., Any], case: Case, see: Observer) -> None:
    x = case.x.clone()
    cos, sin = tables(x.shape[2], case.room, *case.angles)
    with see.call("the call"):
        got = apply_rotary(x, torch.tensor(case.positions), cos, sin)
    kept = torch.equal(x, case.x)
    see.true("x after the call", kept, "is not what it was", "Leave the argument as it is.")
    see.kind("the call", got, torch.Tensor, "a tensor")
    see.equal("the shape of the result", list(got.shape), list(x.shape), "They are x's.")
    see.stop_if_wrong()
    because = (
        f"Components i and i + {x.shape[2] // 2} are the coordinates of a point, rotated by "
        "the angle that the tables have for the token's position."
    )
    step = 1e-4
    if x.dtype != torch.float32:
        because = "Round only the result to its dtype: tables and products stay in float32."
        step = 0.6 * torch.finfo(x.dtype).eps
    see.equal("the result's dtype", got.dtype, x.dtype, "It is that of x.")
    want = oracles.rotary(case.x, case.positions, *case.angles)
    halves = zip(("first", "second"), got.chunk(2, -1), want.chunk(2, -1), strict=True)
    for name, mine, right in halves:
        what = f"the {name} half of the result"
        see.close(what, mine.double(), right, because, rtol=step, atol=1e-5)


def draw(apply_rotary: Callable[..., Any]) -> Any:
    """The learner's rotation of a vector whose pairs all lie at (1, 0): cosines and sines."""
    dim, count = 64, 64
    x = torch.zeros(count, 1, dim)
    x[..., : dim // 2] = 1.0
    turned = apply_rotary(x, torch.arange(count), *tables(dim, count, 100000.0))[:, 0]
    return viz.draw_rotary(turned[:, : dim // 2], turned[:, dim // 2 :])
