"""18.5: the gradients of a key and its value, by the warp that owns the key."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import KernelCase, draw_lines, poisoned, reserved, run
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import (
    Problem,
    attend,
    cases_of,
    see_loads,
    see_result,
    seen_by,
    tensors,
)
from yaie.ops.reference.attention import attention

NAME = "attention_backward"
SMALL = (
    Problem(((4, 5),)),
    Problem(((4, 5),), heads=4, kv_heads=2),
    Problem(((5, 7),), causal=True),
    Problem(((6, 3),), causal=True),
)
OTHERS = (
    Problem(((0, 3),)),
    Problem(((6, 6),), heads=6, kv_heads=2, dim=33, causal=True),
    Problem(((3, 9),), dim=100),
    Problem(((6, 8),), heads=2, kv_heads=1, dim=40, causal=True, suffix="f16"),
    Problem(((6, 8),), heads=2, kv_heads=1, dim=40, causal=True, suffix="bf16"),
)
COUNTED = Problem(((8, 12),), heads=2, kv_heads=1, dim=64, causal=True)

BECAUSE = {
    "grad_k": (
        "grad_k of a key is the sum of weight × (grad_out · v - delta) × q over all queries that "
        "see it, in all heads of its group, times scale."
    ),
    "grad_v": (
        "grad_v of a key is the sum of weight × grad_out over all queries that see it, in all "
        "heads of its group. Row (query, head) has the number query × heads + head."
    ),
}
EXPLAIN = {
    "race": (
        "A warp writes the gradients of its own key only, and adds up itself what all queries "
        "give. That is why no atomics are needed."
    ),
    "out_of_bounds": (
        "Row (query, head) of q and grad_out is query × heads + head, and head_dim elements long; "
        "lse and delta have one number for it. The first query is not below 0. The gradients of "
        "this warp's key begin at `own`."
    ),
    "shuffle": (
        "All 32 lanes have to reach `dot`: they share the elements of a row, not the queries."
    ),
}
FAR = Problem(((1, 1),), dim=256, suffix="f16")  # and as many queries before it as 2³¹ elements


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)
    last = {"order": "reverse", "most_blocks": 1, "checked": False}  # which would copy all of it
    yield KernelCase("a query whose row begins at element 2³¹", problem=FAR, how=last)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    problem = case.problem
    if problem is FAR:
        observe_far(path, case, see)
        return
    given, (_, grad_k, grad_v) = arguments(problem)
    report = run(see, path, f"{NAME}_{problem.suffix}", *given, explain=EXPLAIN, **case.how)
    want_k, want_v = gradients(problem)
    see_result(see, "grad_v", grad_v, want_v, BECAUSE["grad_v"], problem)
    see_result(see, "grad_k", grad_k, want_k, BECAUSE["grad_k"], problem)
    if not case.costs:
        return
    num_q = problem.lengths[0][0]
    pairs = sum(seen_by(problem, 0, query) for query in range(num_q))
    needed = problem.heads * problem.dim // 32 * (pairs + num_q)  # and once by backward_queries
    once = "Load each query that sees the key once, for both gradients, and load no other query."
    see_loads(see, report, "q", needed, once)


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """One key, which the last of 2²³ + 1 causal queries sees; what comes before takes no memory."""
    grad_out, q, k, v, lse, delta = inputs(FAR)
    before = (1 << 31) // FAR.dim
    large = [reserved((before + 1) * FAR.dim, q.dtype) for _ in range(3)]
    large += [reserved(before + 1, lse.dtype) for _ in range(2)]
    for tensor, last in zip(large, (grad_out, q, q, lse, delta), strict=True):
        tensor[-last.numel() :] = last.flatten()
    grad_k, grad_v = (poisoned(*x.shape, dtype=x.dtype) for x in (k, v))
    far_grad_out, far_q, grad_q, far_lse, far_delta = large
    tensors = far_grad_out, far_q, k, v, far_lse, far_delta, grad_q, grad_k, grad_v
    sizes = before + 1, 1, 1, 1, FAR.dim, FAR.scale, 1
    run(see, path, f"{NAME}_f16", *tensors, *sizes, explain=EXPLAIN, **case.how)
    bits = "Where the row of a query begins needs 64 bits: an int ends at 2³¹ - 1."
    for name, got, want in zip(("grad_k", "grad_v"), (grad_k, grad_v), gradients(FAR), strict=True):
        see_result(see, name, got, want, bits, FAR)


@lru_cache(maxsize=64)
def inputs(problem: Problem) -> tuple[Any, ...]:
    """What the launcher reads: grad_out, q, k, v, lse and delta."""
    q, k, v = tensors(problem)
    generator = torch.Generator().manual_seed(problem.dim)
    grad_out = torch.randn(q.shape, generator=generator).to(q.dtype)
    out, lse = attend(problem)
    delta = (grad_out.double() * out).sum(-1)
    return grad_out, q, k, v, lse.float(), delta.float()


def arguments(problem: Problem) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the launcher is called with, and its outputs, full of NaN."""
    given = inputs(problem)
    outputs = tuple(poisoned(*x.shape, dtype=x.dtype) for x in given[1:4])
    sizes = (*problem.lengths[0], problem.heads, problem.kv_heads, problem.dim)
    return (*given, *outputs, *sizes, problem.scale, int(problem.causal)), outputs


def gradients(problem: Problem) -> tuple[Any, Any]:
    """grad_k and grad_v in float64, by torch's autograd of softmax(q kᵀ · scale) v."""
    grad_out, q, k, v = (x.double() for x in inputs(problem)[:4])
    k, v = k.requires_grad_(), v.requires_grad_()
    out, _ = attention(q, k, v, problem.causal, problem.scale)
    return torch.autograd.grad(out, (k, v), grad_out)


def draw(path: Path) -> Any:
    """What each line costs."""
    return draw_lines(path, f"{NAME}_f32", *arguments(COUNTED)[0])
