"""08.1: what `flash_forward` returns, the tensors it makes and the tiles it computes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from yaie.course.core.memory import Memory
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb08.dense import (
    PLANNED,
    Shape,
    attention,
    new_case,
    random_shapes,
    see_cost,
)
from yaie.course.lessons.attention_costs import AttentionShape, naive_cost

SMALL = {"rtol": 2e-2, "atol": 1e-2}
WIDE = {"rtol": 1e-9, "atol": 1e-9}


def cases() -> Iterator[Case]:
    for seed, shape in enumerate(PLANNED):
        yield new_case(shape, 0.6, seed)
    yield new_case(Shape(6, 6, 2, 1, 8, causal=True), 8**-0.5, 0)
    large = Shape(5, 9, 2, 1, causal=True, tile_q=2, tile_k=3)
    yield new_case(large, 1.0, size=40.0)
    half = Shape(6, 9, 2, 1, 16, causal=True)
    for dtype in ("float16", "bfloat16"):
        yield new_case(half, 0.25, dtype=dtype, tolerance=SMALL)
    yield new_case(Shape(96, 96, 2, 1, 2, causal=True, tile_q=8, tile_k=8), 0.7, cost=True)
    yield new_case(Shape(32, 40, 1, 1, 4, causal=True), 0.5, cost=True)
    yield new_case(Shape(6, 9, 2, 1, causal=True), 0.5, dtype="float64", tolerance=WIDE)
    for seed, shape in enumerate(random_shapes(50, sizes=(2, 5, 8))):
        yield new_case(shape, 0.4, seed)


def observe(flash_forward: Callable[..., Any], case: Case, see: Observer) -> None:
    shape: Shape = case.shape
    want = attention(shape, case.scale, case.seed, case.dtype, getattr(case, "size", 1.0))
    before = [want.q, want.k, want.v]
    given = [x.clone() for x in before]
    call = partial(flash_forward, *given, shape.causal, case.scale, shape.tile_q, shape.tile_k)
    if hasattr(case, "cost"):
        see_cost(see, shape, call, products=2, copies=2)
        see_loads(see, shape, flash_forward, given, case.scale)
        return
    with see.call("flash_forward"):
        got = call()
    out, lse = see.parts("flash_forward", got, "output", "log-sum-exp")
    see.unchanged("qkv", given, before)
    tolerance = getattr(case, "tolerance", {})
    past = shape.num_k - shape.num_q
    rows = f"Query i is at position {past} + i, and sees the keys up to there."
    rows = rows if shape.causal else f"Every query sees all {shape.num_k} keys."
    see.close("the output", out, want.out.to(want.q.dtype), rows, **tolerance)
    exact = tolerance if case.dtype == "float64" else {}
    lse_dtype = want.lse if case.dtype == "float64" else want.lse.float()
    kept = "It is what `finish` returns, queries first, in float32 (float64 if q is)."
    see.close("the log-sum-exp", lse, lse_dtype, kept, **exact)


def see_loads(
    see: Observer, shape: Shape, flash_forward: Callable[..., Any], given: list[Any], scale: float
) -> None:
    """Note how many tokens of q, k or v a load takes at most."""
    memory = Memory()
    placed = [memory.place(x, name) for x, name in zip(given, "qkv", strict=True)]
    flash_forward(*placed, shape.causal, scale, shape.tile_q, shape.tile_k)
    loads = [event for event in memory.events if event.kind == "read" and event.name in "qkv"]
    most = max((event.end - event.start for event in loads), default=0)
    why = "A tile is what fits on the chip: load q, k and v by slices of one tile."
    tile = max(shape.tile_q, shape.tile_k)
    see.at_most("the number of tokens that are loaded together", most, tile, why)


def draw(flash_forward: Callable[..., Any]) -> Any:
    """A causal run of the learner's function on 64 tokens, and the traffic that it made."""
    from yaie.course.viz.tiles import draw_tiles, record_tiles

    generator = torch.Generator().manual_seed(0)
    memory = Memory()
    inputs = (torch.randn(64, 1, 16, generator=generator) for _ in range(3))
    placed = [memory.place(x, name) for x, name in zip(inputs, "qkv", strict=True)]
    flash_forward(*placed, True, 0.25, 16, 16)
    naive = naive_cost(AttentionShape(64, 64, head_dim=16, itemsize=4)).bytes
    return draw_tiles(record_tiles(memory.events, 64, 64, True, naive)[-1])
