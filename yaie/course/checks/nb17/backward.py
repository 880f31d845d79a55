"""The check of 17.4: the gradients of a key and its value, by the warp that owns it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb17.common import TOLERANCE, Problem, attend, requests, tensors
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

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
        "grad_k of a key is the sum of weight × (dot(grad_row, v_row) - delta) × q over all "
        "queries that see it, in all heads of its group, times scale."
    ),
    "grad_v": (
        "grad_v of a key is the sum of weight × grad_row over all queries that see it, in all "
        "heads of its group. Row (query, head) has the number query × heads + head."
    ),
}
UNWRITTEN = "NaN was there before: nobody wrote it. A key that no query sees has gradients of 0."
Terms = dict[str, Any]


def check_backward(path: Path) -> None:
    explain = explanations()

    def values(order: str) -> None:
        for problem in SMALL:
            run(path, problem, explain, order)

    on_every_schedule(values)
    for problem in OTHERS:
        run(path, problem, explain, "forward")
    costs(path)


@lru_cache(maxsize=64)
def inputs(problem: Problem) -> tuple[Any, ...]:
    """What the launcher reads: grad_out, q, k, v, lse and delta."""
    import torch

    q, k, v = tensors(problem)
    generator = torch.Generator().manual_seed(problem.dim)
    grad_out = torch.randn(q.shape, generator=generator).to(q.dtype)
    out, lse = attend(problem)
    delta = (grad_out.double() * out).sum(-1)
    return grad_out, q, k, v, lse.float(), delta.float()


def arguments(problem: Problem) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    given_tensors = inputs(problem)
    outputs = tuple(poisoned(*x.shape, dtype=x.dtype) for x in given_tensors[1:4])
    sizes = (*problem.lengths[0], problem.heads, problem.kv_heads, problem.dim)
    return (*given_tensors, *outputs, *sizes, problem.scale, int(problem.causal)), outputs


def run(path: Path, problem: Problem, explain: Explain, order: str) -> None:
    given_arguments, (_, grad_k, grad_v) = arguments(problem)
    words = str(problem) + ("" if order == "forward" else f", threads in {order} order")
    with given(words):
        launch(
            path, f"{NAME}_{problem.suffix}", *given_arguments, explain=explain, order=order
        )  # fmt: skip
        for name, got in (("grad_v", grad_v), ("grad_k", grad_k)):
            want = gradient(problem, name)
            because = UNWRITTEN if bool(got.isnan().any()) else BECAUSE[name]
            mistakes = ((x.to(got.dtype), told) for x, told in wrong(problem, name))
            tolerance = TOLERANCE[problem.suffix]
            close(got, want.to(got.dtype), name, because=because, mistakes=mistakes,
                  rtol=tolerance, atol=tolerance)  # fmt: skip


# ------------------------------------------------------------------------------------- answers


def gradient(
    problem: Problem,
    name: str,
    term: Callable[[Terms], Any] | None = None,
    first: Callable[[int], int] | None = None,
    heads: Callable[[int], list[int]] | None = None,
) -> Any:
    """grad_k or grad_v in float64.

    Args:
        term: what a query adds to a key's gradient, if not what it should: from the weight, dp
            (dot of grad_row and v_row), delta, scale, q, grad, k, v, score and lse, all of which
            can be multiplied to `[queries, keys, head_dim]`.
        first: key -> the first query that sees it.
        heads: KV head -> the query heads that are added up.
    """
    import torch

    grad_out, q, k, v, lse, delta = inputs(problem)
    grad_out, q, k, v, lse, delta = (x.double() for x in (grad_out, q, k, v, lse, delta))
    (num_q, num_k), past = problem.lengths[0], problem.lengths[0][1] - problem.lengths[0][0]
    begins = [max(0, key - past) if problem.causal else 0 for key in range(num_k)]
    begins = [first(key) for key in range(num_k)] if first else begins
    added = torch.arange(num_q).view(-1, 1, 1) >= torch.tensor(begins).view(1, -1, 1)
    found = torch.zeros_like(k)
    for kv_head in range(problem.kv_heads):
        group = list(range(kv_head * problem.group, (kv_head + 1) * problem.group))
        of_k, of_v = k[None, :, kv_head], v[None, :, kv_head]
        for head in heads(kv_head) if heads else group:
            of_q, of_grad = q[:, None, head], grad_out[:, None, head]
            score = (of_q * of_k).sum(-1, keepdim=True) * problem.scale
            of_lse = lse[:, head].view(-1, 1, 1)
            blind = of_lse == -math.inf
            terms = {
                "weight": (score - of_lse.masked_fill(blind, math.inf)).exp(),
                "dp": (of_grad * of_v).sum(-1, keepdim=True),
                "delta": delta[:, head].view(-1, 1, 1),
                "scale": problem.scale,
                "q": of_q,
                "grad": of_grad,
                "k": of_k,
                "v": of_v,
                "score": score,
                "lse": of_lse,
            }
            shares = (term or TERM[name])(terms).expand(num_q, num_k, problem.dim)
            found[:, kv_head] += shares.masked_fill(~added, 0.0).sum(0)
    return found


def exp(x: Any) -> Any:
    """e to the x, finite."""
    return x.clamp(max=50.0).exp()


TERM: dict[str, Callable[[Terms], Any]] = {
    "grad_v": lambda t: t["weight"] * t["grad"],
    "grad_k": lambda t: t["weight"] * (t["dp"] - t["delta"]) * t["q"] * t["scale"],
}


def wrong(problem: Problem, name: str) -> Iterator[tuple[Any, str]]:
    """Gradients that are likely, and what they come from."""
    terms = {
        "grad_v": (
            (lambda t: t["weight"] * t["grad"] * t["scale"], "The scale belongs to the scores, so "
             "to grad_k; grad_v is the sum of weight × grad_row."),
            (lambda t: t["grad"], "Every row of grad_out was added whole: its weight is missing."),
            (lambda t: t["weight"] * t["q"], "That is the sum of weight × q: grad_v gathers "
             "grad_row."),
            (lambda t: exp(t["score"]) * t["grad"], "These are exp(score), not "
             "weights: weights are exp(score - lse)."),
            (lambda t: exp(t["score"] / t["scale"] - t["lse"]) * t["grad"],
             "The scores are not scaled: the forward pass multiplied them with scale before exp."),
            (TERM["grad_k"], "That is grad_k: the two are exchanged."),
            (lambda t: t["weight"] * (t["dp"] - t["delta"]) * t["grad"], "grad_v gathers the "
             "weights themselves; weight × (dp - delta) is for grad_k."),
        ),
        "grad_k": (
            (lambda t: t["weight"] * t["dp"] * t["q"] * t["scale"], "delta is missing: if all "
             "scores of a row go up alike, no weight changes, so the sum of a row of weight × "
             "(dp - delta) is 0."),
            (lambda t: t["weight"] * (t["dp"] + t["delta"]) * t["q"] * t["scale"], "delta is "
             "subtracted, not added."),
            (lambda t: t["weight"] * (t["dp"] - t["delta"]) * t["q"], "The scale is missing: a "
             "score is q · k × scale, so it changes by q × scale when k changes."),
            (lambda t: t["weight"] * (t["dp"] - t["delta"]) * t["q"] * t["scale"] ** 2,
             "The scale was taken twice."),
            (lambda t: t["weight"] * (t["dp"] - t["delta"]) * t["k"] * t["scale"], "That adds up "
             "k_row; grad_k gathers q_row."),
            (lambda t: (t["dp"] - t["delta"]) * t["q"] * t["scale"], "The weight is missing in "
             "weight × (dp - delta)."),
            (lambda t: t["weight"] * t["q"] * t["scale"], "That is the sum of weight × q × scale: "
             "(dp - delta) is missing, where dp is dot(grad_row, v_row)."),
            (TERM["grad_v"], "That is grad_v: the two are exchanged."),
        ),
    }[name]  # fmt: skip
    yield from ((gradient(problem, name, term), text) for term, text in terms)
    group, kv_heads = problem.group, problem.kv_heads
    if group > 1:
        all_heads = problem.heads
        yield from (
            (gradient(problem, name, heads=heads), text)
            for heads, text in (
                (lambda h: [h * group], "Only the first head of the group was added up: a KV head "
                 "collects from all query heads that read it."),
                (lambda h: [h * group + group - 1], "Only the last head of the group is left: "
                 "sums go on from head to head, and are stored once."),
                (lambda h: [h], "KV head h collected from query head h: it is read by the heads "
                 "h × group to h × group + group - 1."),
                (lambda h: list(range(h, all_heads, kv_heads)), "KV head h collected from the "
                 "query heads h, h + kv_heads, …: it is read by neighbors, h × group to h × group "
                 "+ group - 1."),
                (lambda h: list(range(all_heads)), "KV head h collected from all query heads: it "
                 "is read by h × group to h × group + group - 1."),
            )
        )  # fmt: skip
    if problem.causal:
        past = problem.lengths[0][1] - problem.lengths[0][0]
        yield from (
            (gradient(problem, name, first=first), text)
            for first, text in (
                (lambda key: 0, "Queries before the key were added up, which do not see it. The "
                 "first that does is key - (num_k - num_q), or 0."),
                (lambda key: key, "The first query that sees a key was taken to be `key`, as if "
                 "queries and keys began together. The queries are the last tokens: query i is "
                 "token num_k - num_q + i."),
                (lambda key: max(0, key - past + 1), "The query at the key's own position is "
                 "missing: it sees the key."),
                (lambda key: max(0, key + past), "The first query that sees a key is key - "
                 "(num_k - num_q): the other way round."),
            )
        )  # fmt: skip


# ---------------------------------------------------------------------------------------- costs


def costs(path: Path) -> None:
    """Each query that sees the key is asked for once a head."""
    given_arguments, _ = arguments(COUNTED)
    with given(str(COUNTED)):
        report = report_of(path, f"{NAME}_f32", *given_arguments)
        num_q, num_k = COUNTED.lengths[0]
        pairs = sum(num_q - max(0, key - (num_k - num_q)) for key in range(num_k))
        needed = COUNTED.heads * COUNTED.dim // 32 * (pairs + num_q)  # and once by backward_queries
        asked = requests(report, "q")
        if asked > needed:
            fail(
                f"the result is right, but q was asked for {asked} times, and {needed} would do: "
                "a query that sees the key is loaded once, for both gradients, and one that does "
                "not see it never."
            )


def explanations() -> Explain:
    def race(found: Finding) -> str:
        return (
            "A warp writes the gradients of its own key: what other warps would add, it adds up "
            "itself. That is why no atomics are needed."
        )

    def bounds(found: Finding) -> str:
        if found.name in ("q", "grad_out", "lse", "delta"):
            return (
                "Row (query, head) of q and grad_out is query × heads + head, and head_dim "
                "elements long; lse and delta have one number for it. The first query is not below "
                "0."
            )
        return "The gradients of this warp's key begin at `own`."

    absent = "All 32 lanes come to `dot`: they differ in elements of a row, not in queries."
    return {
        "race": race,
        "out_of_bounds": bounds,
        "inactive_lane": absent,
        "deadlock": absent,
        "divergent_collective": absent,
        "wrong_mask": absent,
    }


def draw_backward(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    given_arguments, _ = arguments(COUNTED)
    return draw_costs(report_of(path, f"{NAME}_f32", *given_arguments))
