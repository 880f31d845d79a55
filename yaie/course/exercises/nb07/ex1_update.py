"""07.1: the state that `OnlineSoftmax.update` leaves behind, tile after tile."""

import random
from collections.abc import Iterator
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb07.oracle import INF, sums

OLD, NEW = [[1.0, 0.0], [0.0, 1.0]], [[2.0, 2.0], [3.0, -1.0]]  # values


def cases() -> Iterator[Case]:
    yield planned(held=([[1.0, 2.0]], OLD), tiles=[([[4.0, 3.5]], NEW)])
    yield planned(held=([[1.0, 2.0]], OLD), tiles=[([[0.5, -1.0]], NEW)])
    yield planned(held=([[1.0, 2.0], [0.0, 1.0]], OLD), tiles=[([[4.0, 3.0], [1.0, 2.0]], NEW)])
    yield planned(held=([[1.0, 2.0], [5.0, 0.0]], OLD), tiles=[([[4.0, 3.0], [1.0, 2.0]], NEW)])
    yield planned(tiles=[([[1.0, 2.0]], OLD)])
    yield planned(tiles=[([[-INF, -INF], [1.0, -INF]], OLD), ([[-INF, 2.0], [-INF, -INF]], OLD)])
    scores = [[-900.0, -800.0], [100.0, 700.0], [900.0, 899.0]]
    values = torch.arange(12.0).view(3, 2, 2).tolist()
    yield planned(tiles=[([row], own) for row, own in zip(scores, values, strict=True)])
    yield planned(tiles=[([[-200000.0, -199999.0]], OLD)])
    generator, drawn = torch.Generator().manual_seed(0), random.Random(0)
    for _ in range(40):
        rows = drawn.choice([(1,), (3,), (2, 4), (2, 1, 3)])
        trace = []
        for _ in range(drawn.randint(1, 5)):
            keys = drawn.randint(1, 5)
            scores = torch.randn(*rows, keys, generator=generator) * 4
            scores[torch.rand(scores.shape, generator=generator) < 0.2] = -INF
            trace.append((scores, torch.randn(*rows[:-1], keys, 3, generator=generator)))
        yield Case(in_words, trace=trace, held=None)


def planned(tiles: list[Any], held: Any = None) -> Case:
    tiles = [tuple(map(torch.tensor, tile)) for tile in tiles]
    held = held and tuple(map(torch.tensor, held))
    return Case(in_words, trace=tiles, held=held)


def in_words(case: Case) -> str:
    state = "an empty state" if case.held is None else f"a state of the scores {shown(case.held)}"
    return f"{state}, updated with the scores {', then '.join(map(shown, case.trace))}"


def shown(tile: tuple[Any, Any]) -> str:
    scores = tile[0]
    if scores.numel() > 12 or scores.ndim != 2:
        return f"of shape {list(scores.shape)}"
    return str([[round(x, 2) for x in row] for row in scores.tolist()])


def observe(OnlineSoftmax: type, case: Case, see: Observer) -> None:
    if not case.trace:
        return
    first_scores, first_values = case.trace[0]
    rows, head_dim = tuple(first_scores.shape[:-1]), first_values.shape[-1]
    state = OnlineSoftmax.empty(rows, head_dim, like=first_values)
    so_far = [] if case.held is None else [case.held]
    if case.held:
        state = OnlineSoftmax(*(x.float() for x in sums(*case.held)))
    for number, (scores, values) in enumerate(case.trace, start=1):
        given = scores.clone(), values.clone()
        with see.call("update"):
            state.update(*given)
        see.unchanged(("scores", "values"), given, (scores, values))
        so_far.append((scores, values))
        whole = [torch.cat(parts, dim=-1 - i) for i, parts in enumerate(zip(*so_far, strict=True))]
        when = f" after update {number}" if len(case.trace) > 1 else ""
        for name, want, why in zip(NAMES, sums(*whole), WHY, strict=True):
            see.close(f"{name}{when}", getattr(state, name[5:]), want.float(), why)


NAMES = "self.maximum", "self.total", "self.accumulator"
WHY = (
    "It is the largest score of each row so far, -inf before any.",
    "It is the sum of exp(score - self.maximum) over all scores of the row so far.",
    "It is the sum of exp(score - self.maximum) times the value over all scores of the row so far.",
)


def draw(OnlineSoftmax: type) -> Any:
    """Twelve scores in tiles of three, by the learner's updates."""
    from yaie.course.viz.attention import draw_online, record_online

    generator = torch.Generator().manual_seed(3)
    scores = (torch.randn(12, generator=generator) * 2).tolist()
    values = torch.randn(12, 2, generator=generator)
    state = OnlineSoftmax.empty((1,), 2, like=values)
    steps = record_online(state, scores, values, 3)
    titles = [f"scores {s.start} to {s.end - 1}" for s in steps]
    return viz.film_strip(steps, draw_online, titles, frames=[1, 3])
