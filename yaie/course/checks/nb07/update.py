"""The check of OnlineSoftmax.update."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from yaie.course.core.expect import close, equal, fail, given, true

if TYPE_CHECKING:
    from torch import Tensor

NAN = (
    "A row that has seen nothing but -inf has the maximum -inf, and -inf - -inf is NaN. Subtract "
    "`finite(maximum)`, which is 0 there: exp(-inf - 0) is 0, as it should be."
)

AXIS = (
    "The {what} is [rows], the {wide} [rows, {last}]: without an axis of its own "
    "(`unsqueeze(-1)`) each row's {what} goes to a column instead."
)
SHAPES = {
    RuntimeError: "The maximum and the factor have one number a row. The scores and the "
    "accumulator have one axis more: `unsqueeze(-1)`."
}


def check_update(OnlineSoftmax: type) -> None:
    import torch

    one_row(OnlineSoftmax)
    two_rows(OnlineSoftmax)
    from_nothing(OnlineSoftmax)
    hidden_rows(OnlineSoftmax)
    large_scores(OnlineSoftmax)
    generator, drawn = torch.Generator().manual_seed(0), random.Random(0)
    for _ in range(40):
        rows = drawn.choice([(1,), (3,), (2, 4), (2, 1, 3)])
        tiles = [drawn.randint(1, 5) for _ in range(drawn.randint(1, 5))]
        scores = torch.randn(*rows, sum(tiles), generator=generator) * 4
        scores[torch.rand(scores.shape, generator=generator) < 0.2] = -math.inf
        values = torch.randn(*rows[:-1], sum(tiles), 3, generator=generator)
        whole_row(OnlineSoftmax, scores, values, tiles)


def one_row(OnlineSoftmax: type) -> None:
    """A state that is given, and a tile with a larger maximum."""
    import torch

    old = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    new = torch.tensor([[4.0, 3.5]]), torch.tensor([[2.0, 2.0], [3.0, -1.0]])
    step(OnlineSoftmax, old, new, "update with the scores [4, 3.5] after the scores [1, 2]")
    lower = torch.tensor([[0.5, -1.0]]), new[1]
    step(OnlineSoftmax, old, lower, "update with the scores [0.5, -1] after the scores [1, 2]")


def two_rows(OnlineSoftmax: type) -> None:
    import torch

    old = torch.tensor([[1.0, 2.0], [5.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    new = torch.tensor([[4.0, 3.0], [1.0, 2.0]]), torch.tensor([[2.0, 2.0], [3.0, -1.0]])
    call = "update of two rows with the scores [[4, 3], [1, 2]] after [[1, 2], [5, 0]]"
    step(OnlineSoftmax, old, new, call)


def step(
    OnlineSoftmax: type, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], call: str
) -> None:
    """One call on a state that is right, compared number by number."""
    import torch

    before = at_once(*old)
    state = OnlineSoftmax(*(x.float() for x in before))
    scores, values = (x.clone() for x in new)
    with given(call, errors=SHAPES):
        state.update(scores, values)
        equal(scores, new[0], "after the call, scores", because="Leave the arguments as they are.")
        equal(values, new[1], "after the call, values", because="Leave the arguments as they are.")
        both = torch.cat((old[0], new[0]), dim=-1), torch.cat((old[1], new[1]), dim=-2)
        compare(state, both, before, new)


def compare(
    state: Any, both: tuple[Tensor, Tensor], before: tuple[Tensor, ...], new: tuple[Tensor, Tensor]
) -> None:
    """The three numbers of each row, with what known mistakes make of them."""
    maximum, total, accumulator = at_once(*both)
    tile_maximum = new[0].double().amax(dim=-1)
    close(
        state.maximum,
        maximum.float(),
        "self.maximum",
        because="It is the largest score of each row so far.",
        mistakes=[
            (
                before[0].float(),
                "It is still the old one. `update` returns nothing: assign to self.maximum, "
                "self.total and self.accumulator.",
            ),
            (
                tile_maximum.float(),
                "This is the maximum of the new tile alone. Compare it with the old one.",
            ),
            (
                maximum.max().expand_as(maximum).float(),
                "One maximum for all rows: each row has its own, over the last axis.",
            ),
        ],
    )
    wrong = wrong_sums(before, new, maximum)
    close(
        state.total,
        total.float(),
        "self.total",
        because="It is the sum of exp(score - self.maximum) over all scores so far.",
        mistakes=[(sums[0].float(), text) for sums, text in wrong],
    )
    close(
        state.accumulator,
        accumulator.float(),
        "self.accumulator",
        because=(
            "It is the sum of exp(score - self.maximum) times the value over all scores so far."
        ),
        mistakes=[(sums[1].float(), text) for sums, text in wrong],
    )


def at_once(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, sum and weighted sum of a row that is there as a whole, float64."""
    scores, values = scores.double(), values.double()
    maximum = scores.amax(dim=-1)
    anchor = maximum.clamp(min=-1e300).unsqueeze(-1)
    weights = (scores - anchor).exp()
    return maximum, weights.sum(dim=-1), (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(dim=-2)


def wrong_sums(
    before: tuple[Tensor, ...], new: tuple[Tensor, Tensor], maximum: Tensor
) -> list[tuple[tuple[Tensor, Tensor], str]]:
    """What known mistakes make of the two sums."""
    old, total, accumulator = before
    scores, values = (x.double() for x in new)
    ratio = (old - maximum).exp()

    def sums(factor: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
        weights = (scores - anchor.unsqueeze(-1)).exp()
        weighted = weights @ values
        return (
            total * factor + weights.sum(dim=-1),
            accumulator * factor.unsqueeze(-1) + weighted,
        )

    one = ratio * 0 + 1
    right = sums(ratio, maximum)
    axes = []
    if len(maximum) == scores.shape[-1] == values.shape[-1] > 1:  # where broadcasting is silent
        flat = (scores - maximum).exp()
        axes = [
            (
                (
                    total * ratio + flat.sum(dim=-1),
                    accumulator * ratio.unsqueeze(-1) + flat @ values,
                ),
                AXIS.format(what="maximum", wide="scores", last="keys"),
            ),
            (
                (right[0], accumulator * ratio + (scores - maximum.unsqueeze(-1)).exp() @ values),
                AXIS.format(what="factor", wide="accumulator", last="head_dim"),
            ),
        ]
    divided = right[0] * 0 + 1, right[1] / right[0].unsqueeze(-1)
    return [
        *axes,
        (
            sums(one, maximum),
            "The old sum was not rescaled: it is relative to the old maximum, the new terms to "
            "the new one. Multiply what was summed before by exp(old maximum - new maximum).",
        ),
        (
            sums(1 / ratio, maximum),
            "The old sum was rescaled by the wrong sign: the factor is exp(old maximum - new "
            "maximum), which is at most 1.",
        ),
        (
            sums(one, old),
            "The new terms are relative to the old maximum: take exp(score - new maximum).",
        ),
        (
            sums(ratio, old),
            "The new terms are relative to the old maximum: take exp(score - new maximum).",
        ),
        (
            sums(ratio, scores.amax(dim=-1)),
            "The new terms are relative to the maximum of their own tile, not to that of all so "
            "far.",
        ),
        (sums(ratio * 0, maximum), "What was summed before is lost: add the new terms to it."),
        (
            divided,
            "It was divided by the sum already. Nothing is divided here: `finish` does it once, "
            "at the end.",
        ),
        (sums(ratio**2, maximum), "The old sum was rescaled twice."),
        (
            sums(one, maximum * 0),
            "The new terms are exponentials of the scores themselves, which overflow at 89: take "
            "exp(score - new maximum).",
        ),
    ]


def whole_row(OnlineSoftmax: type, scores: Tensor, values: Tensor, tiles: list[int]) -> None:
    """A row in tiles, from the empty state."""
    state = OnlineSoftmax.empty(tuple(scores.shape[:-1]), values.shape[-1], like=values)
    start = 0
    shape = list(scores.shape)
    with given(f"updates with scores {shape} in tiles of {tiles}", errors=SHAPES):
        for tile in tiles:
            end = start + tile
            state.update(scores[..., start:end].clone(), values[..., start:end, :].clone())
            no_nan(state)
            start = end
        maximum, total, accumulator = (x.float() for x in at_once(scores, values))
        close(state.maximum, maximum, "self.maximum")
        close(state.total, total, "self.total")
        close(state.accumulator, accumulator, "self.accumulator", atol=1e-4)


def no_nan(state: Any) -> None:
    for name in ("maximum", "total", "accumulator"):
        true(not getattr(state, name).isnan().any(), f"self.{name} has a NaN. {NAN}")


def from_nothing(OnlineSoftmax: type) -> None:
    import torch

    scores, values = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    state = OnlineSoftmax.empty((1,), 2, like=values)
    with given("update with the scores [1, 2] of an empty state (maximum -inf, sums 0)"):
        state.update(scores, values)
        compare(state, (scores, values), at_once(scores, values), (scores, values))


def hidden_rows(OnlineSoftmax: type) -> None:
    import torch

    inf = -math.inf
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    state = OnlineSoftmax.empty((2,), 2, like=values)
    first, second = torch.tensor([[inf, inf], [1.0, inf]]), torch.tensor([[inf, 2.0], [inf, inf]])
    with given("update of an empty state with the scores [[-inf, -inf], [1, -inf]]"):
        state.update(first, values)
        no_nan(state)
        if state.maximum[0] != inf:
            fail(
                f"self.maximum of the first row is {state.maximum[0].item():g}, expected -inf. No "
                "score has come yet; use a finite number for the subtraction only."
            )
        equal(state.total, torch.tensor([0.0, 1.0]), "self.total")
    with given("a second update with the scores [[-inf, 2], [-inf, -inf]]"):
        state.update(second, values)
        no_nan(state)
        equal(state.maximum, torch.tensor([2.0, 1.0]), "self.maximum")
        equal(state.total, torch.tensor([1.0, 1.0]), "self.total")
        equal(state.accumulator, torch.tensor([[0.0, 1.0], [1.0, 0.0]]), "self.accumulator")


def large_scores(OnlineSoftmax: type) -> None:
    import torch

    scores = torch.tensor([[-900.0, -800.0, 100.0, 700.0, 900.0, 899.0]])
    values = torch.arange(12.0).view(6, 2)
    whole_row(OnlineSoftmax, scores, values, [2, 2, 2])


def draw_row(OnlineSoftmax: type) -> Any:
    """Twelve scores in tiles of three, by the learner's updates."""
    import torch

    from yaie.course.viz import film_strip
    from yaie.course.viz.online import draw_online, record_online

    generator = torch.Generator().manual_seed(3)
    scores = (torch.randn(12, generator=generator) * 2).tolist()
    values = torch.randn(12, 2, generator=generator)
    state = OnlineSoftmax.empty((1,), 2, like=values)
    steps = record_online(state, scores, values, 3)
    titles = [f"scores {s.start} to {s.end - 1}" for s in steps]
    return film_strip(steps, draw_online, titles, frames=[1, 3])
