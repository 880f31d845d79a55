"""08.3: the gradients of `flash_backward`, the tensors it makes and the tiles it computes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb08 import NOTEBOOK
from yaie.course.exercises.nb08.dense import (
    Shape,
    attention,
    new_case,
    see_cost,
    see_results,
    see_unchanged,
)

EXERCISE = Exercise(
    id="08.3",
    notebook=NOTEBOOK,
    slug="flash_backward",
    title="The backward pass, recomputed",
    target="yaie.course.lessons.ops.reference.flash:flash_backward",
    task=(
        "The gradients of q, k and v, by the same two loops as the forward pass. Each tile of "
        "weights is computed again, exp(scores - lse), and needs no running maximum: the "
        "log-sum-exp is final. The formulas are in the docstring. A tile of keys is met by "
        "several tiles of queries, and a KV head by several query heads: their gradients add "
        "up (`tokens_first` with fewer heads adds the heads of a group), in float32 even if q, k "
        "and v are in half precision."
    ),
    difficulty=3,
    minutes=35,
    hints=(
        "Keep the loops of 08.1. In place of the online softmax there is one sum for each "
        "tile of queries, its gradient; the gradients of keys and values are sums in memory, "
        "to which each tile adds its part.",
        "scores = q kᵀ · scale, so both products with dS carry the scale. dS = P ∘ (dP - "
        "delta) has rows that add up to 0: a softmax does not change when all scores of a row "
        "go up together. Where a row saw nothing, lse is -inf: subtract `finite(lse)`.",
        "Inside the loops, with queries, grads, keys, values [heads, tokens, dim] and row_lse, "
        "row_delta [heads, rows, 1] (`lse[rows].T.unsqueeze(-1)`):\n"
        "    scores = queries @ keys.mT * scale           # masked as before\n"
        "    weights = (scores - finite(row_lse)).exp()\n"
        "    grad_scores = weights * (grads @ ... - row_delta) * scale\n"
        "    grad_queries += grad_scores @ ...\n"
        "    grad_k[columns] += tokens_first(grad_scores.mT @ ..., num_kv_heads)\n"
        "    grad_v[columns] += tokens_first(weights.mT @ ..., num_kv_heads)",
    ),
    proves=(
        "Its gradients are those that autograd finds for a dense attention in float64, for "
        "grouped heads, with a past, where rows see nothing, and in half precision."
    ),
)
PLANNED = [
    Shape(4, 4),
    Shape(4, 8),  # two tiles of keys
    Shape(8, 4),  # two tiles of queries meet the same keys
    Shape(8, 8, causal=True),
    Shape(6, 10),  # short last tiles
    Shape(5, 14, causal=True, tile_q=3),  # a past
    Shape(6, 6, 6, 2, 8, causal=True, tile_k=3),  # grouped heads
    Shape(5, 2, 2, 1, causal=True, tile_q=2, tile_k=2),  # queries that see nothing
]
INPUTS = "grad_out q k v lse delta"
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
    drawn = random.Random(0)
    for seed in range(25):
        kv, group, dim = drawn.randint(1, 2), drawn.randint(1, 3), drawn.choice((2, 5))
        num_q = drawn.randint(1, 9)
        num_k = num_q + drawn.choice((0, 0, 1, 7))
        tiles = drawn.randint(1, 5), drawn.randint(1, 5)
        causal = drawn.random() < 0.7
        yield new_case(Shape(num_q, num_k, kv * group, kv, dim, causal, *tiles), 0.4, seed)


def observe(flash_backward: Callable[..., Any], case: Case, see: Observer) -> None:
    import torch

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
    grads = see_results(see, "flash_backward", got, NAMES)
    see_unchanged(see, INPUTS, given, before)
    for i in VALUES_FIRST:
        right = want.grads[i].to(precision)
        see.close(NAMES[i], grads[i], right, FORMULAS[i], **getattr(case, "tolerance", {}))


def draw(flash_backward: Callable[..., Any]) -> Any:
    """A causal run of the learner's function on 64 tokens, and the traffic that it made."""
    from yaie.course.core.memory import Memory
    from yaie.course.viz.tiles import draw_tiles, record_tiles

    made = attention(Shape(64, 64, head_dim=16, causal=True), 0.25, 0, "float32")
    memory = Memory()
    inputs = made.grad_out, made.q, made.k, made.v, made.lse.float(), made.delta.float()
    placed = [memory.place(x, name) for x, name in zip(inputs, INPUTS.split(), strict=True)]
    flash_backward(*placed, True, 0.25, 16, 16)
    return draw_tiles(record_tiles(memory.events, 64, 64, True)[-1])
