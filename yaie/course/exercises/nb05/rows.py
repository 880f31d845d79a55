"""What the exercises of notebook 05 share: rows of logits, what a filter keeps, and pictures."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.compare import dtype_name
from yaie.course.core.observe import Case, Observer

WORDS = (" the", " a", " blue", " green", " red", " my", " not", " very", " so", " one")
PROBABILITIES = (0.09, 0.07, 0.28, 0.16, 0.2, 0.06, 0.05, 0.04, 0.03, 0.02)
NOT_RANGE = "A wrong parameter must not become a wrong text. `_column` checks it and raises."


def logits_of(*rows: Sequence[float]) -> Any:
    """Logits whose softmax is the given probabilities, one row for each."""
    return torch.tensor([[math.log(p) if p else -math.inf for p in row] for row in rows])


def seeded(*seeds: int) -> list[Any]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def see_refusals(see: Observer, name: str, keep: Callable[..., Any], bad: dict[str, Any]) -> None:
    """Note whether a filter refuses values that are out of range, for two rows of logits."""
    logits = logits_of([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    for text, value in bad.items():
        call = f"{name}(logits, {text}) of two rows"
        see.raises(call, ValueError, lambda value=value: keep(logits, value), NOT_RANGE)


def see_filtered(
    see: Observer,
    name: str,
    keep: Callable[..., Any],
    logits: Any,
    value: Any,
    want: list[list[int]],
    because: list[str],
) -> None:
    """Call a learner's filter and note which tokens of each row it keeps, and as what.

    Args:
        want: for each row the tokens to be kept, in ascending order.
        because: for each row, why.
    """
    if not want:
        return
    before = logits.clone()
    with see.call(name):
        after = keep(logits, value)
    see.kind(f"what {name} returns", after, torch.Tensor)
    form, got = (f"{list(x.shape)} {dtype_name(x)}" for x in (logits, after))
    place = "Dropped tokens stay in their place as -inf."
    if not see.equal(f"the form of what {name} returns", got, form, place):
        see.stop()
    alone = "A filter returns new logits; the model's stay as they are."
    see.equal("the tensor that was passed in", logits, before, alone)
    same = "A kept logit stays as it is, in its own place; a dropped one becomes -inf."
    see.equal("what it returns", after, before.masked_fill(after == -math.inf, -math.inf), same)
    for row, (tokens, why) in enumerate(zip(want, because, strict=True)):
        where = f"{name}, in row {row}," if len(want) > 1 else name
        kept = (after[row] > -math.inf).nonzero().flatten().tolist()
        mine, wanted = listed(kept), listed(tokens)
        beside = f"expected {wanted}" if mine != wanted else f"but not the expected {len(tokens)}"
        problem = "" if kept == tokens else f"keeps {mine}, {beside}"
        see.note(where, kept, problem, why)


def listed(tokens: list[int]) -> str:
    if len(tokens) > 12:
        return f"{len(tokens):,} tokens"
    return f"tokens {tokens}" if tokens else "no token"


def rows_of(case: Case) -> tuple[list[Any], list[Any], tuple[int, ...] | None]:
    """The rows of a case, the parameter of each, and the shape in which the parameters come."""
    if case.trace is None:
        return case.rows, case.ks, case.shape
    return [row for row, _ in case.trace], [value for _, value in case.trace], (-1, 1)


def by_row(case: Case) -> str:
    """The name of a case whose trace is rows: (logits or probabilities, parameter)."""
    rows = [[round(x, 3) for x in row] for row, _ in case.trace]
    values = [round(value, 4) for _, value in case.trace]
    if len(rows) == 1:
        return f"one row of {case.what} {rows[0]}, {case.letter} = {values[0]}"
    if len(rows) * len(rows[0]) > 24:
        return f"{len(rows)} rows of {len(rows[0])} {case.what}, {case.letter} = {values}"
    return f"{len(rows)} rows of {case.what} {rows}, {case.letter} = {values}"


def draw_stages(stages: list[tuple[str, Any, dict[str, float]]]) -> Any:
    """A figure of a distribution after each filter: (name, logits, marks)."""
    filters = [viz.Filter(name, logits[0], **marks) for name, logits, marks in stages]
    return viz.draw_sampling(viz.snapshot_sampling(filters, lambda ids: WORDS[ids[0]]))
