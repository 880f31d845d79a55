"""08.3: the gradients of `flash_backward`, the tensors it makes and the tiles it computes."""

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

INPUTS = "grad_out", "q", "k", "v", "lse", "delta"
NAMES = "the gradient of q", "the gradient of k", "the gradient of v"
FORMULAS = (
    "It is dS K · scale, added up over the tiles of keys.",
    "It is dSᵀ Q · scale, added up over the tiles of queries and the heads of a group.",
    "It is Pᵀ dO, added up over the tiles of queries and the heads of a group.",
)
VALUES_FIRST = 2, 0, 1  # the gradient of v is the simplest
WIDE = {"rtol": 1e-9, "atol": 1e-9}


def cases() -> Iterator[Case]:
    for seed, shape in enumerate(PLANNED):
        yield new_case(shape, 0.6, seed)
    past = Shape(5, 7, causal=True, tile_q=2, tile_k=3)
    yield new_case(past, 0.5, dtype="float64", tolerance=WIDE)
    yield new_case(Shape(96, 96, 1, 1, 2, causal=True, tile_q=8, tile_k=8), 0.7, cost=True)
    for dtype in ("float16", "bfloat16"):
        yield new_case(Shape(6, 9, 2, 1, 8, causal=True, tile_k=3), 0.4, dtype=dtype)
    for seed, shape in enumerate(random_shapes(25, sizes=(2, 5))):
        yield new_case(shape, 0.4, seed)


def observe(flash_backward: Callable[..., Any], case: Case, see: Observer) -> None:
    shape: Shape = case.shape
    want = attention(shape, case.scale, case.seed, case.dtype)
    precision = torch.promote_types(want.q.dtype, torch.float32)
    rows = [want.lse.to(precision), want.delta.to(precision)]
    before = [want.grad_out, want.q, want.k, want.v, *rows]
    given = [x.clone() for x in before]
    call = partial(flash_backward, *given, shape.causal, case.scale, shape.tile_q, shape.tile_k)
    if hasattr(case, "cost"):
        see_cost(see, shape, call, products=5, copies=3)
        return
    with see.call("flash_backward"):
        got = call()
    grads = see.parts("flash_backward", got, *NAMES)
    see.unchanged(INPUTS, given, before)
    for i in VALUES_FIRST:
        right = want.grads[i].to(precision)
        see.close(NAMES[i], grads[i], right, FORMULAS[i], **getattr(case, "tolerance", {}))


def draw(flash_backward: Callable[..., Any]) -> Any:
    """A causal run of the learner's function on 64 tokens, and the traffic that it made."""
    from yaie.course.viz.tiles import draw_tiles, record_tiles

    made = attention(Shape(64, 64, head_dim=16, causal=True), 0.25, 0, "float32")
    memory = Memory()
    inputs = made.grad_out, made.q, made.k, made.v, made.lse.float(), made.delta.float()
    placed = [memory.place(x, name) for x, name in zip(inputs, INPUTS, strict=True)]
    flash_backward(*placed, True, 0.25, 16, 16)
    return draw_tiles(record_tiles(memory.events, 64, 64, True)[-1])
