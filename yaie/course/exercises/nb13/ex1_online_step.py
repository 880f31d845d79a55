"""13.1: one step of the online softmax, its end, and whole rows in tiles, beside float64."""

import math
import random
from collections.abc import Iterator
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import run
from yaie.course.exercises.nb11.tensors import poisoned, spaced
from yaie.course.exercises.nb13.kernels import finish_kernel, operator_by, step_kernel

fit = operator_by("online_step", "finish")
LOWEST = -3.0e38
LOG2_E = math.log2(math.e)
INF = math.inf


def cases() -> Iterator[Case]:
    """A state is (maxima, totals, rows of out); None is the state before the first tile."""
    name = "a first tile, scores [1, 3, 2, 0] and [-5, -1, -2, -4], scale 0.5"
    first = [[1.0, 3.0, 2.0, 0.0], [-5.0, -1.0, -2.0, -4.0]]
    yield Case(name, scores=first, scale=0.5, state=None)
    # A row whose maximum rises, and one whose maximum stays.
    name = "a second tile, scores [4, 10] and [1, 2], scale 0.5, after maxima 2 and 3"
    state = [2.0, 3.0], [1.5, 1.25], [[8.0], [6.0]]
    yield Case(name, scores=[[4.0, 10.0], [1.0, 2.0]], scale=0.5, state=state)
    name = "a tile whose rows 0 and 2 are -inf alone, where row 0 has seen nothing yet"
    hidden = [[-INF, -INF], [-INF, 6.0], [-INF, -INF], [1.0, 2.0]]
    state = [LOWEST, LOWEST, 1.0, LOWEST], [0.0, 0.0, 2.0, 0.0], [[x, x] for x in (0.0, 0, 3, 0)]
    yield Case(name, scores=hidden, scale=1.0, state=state)
    large = [[800.0, 801.0], [-900.0, -901.0]]
    yield Case("scores of 800 and of -900, scale 1", scores=large, scale=1.0, state=None)
    name = "the end, with maxima 3 and -2, totals 8 and 2"
    yield Case(name, scores=None, state=([3.0, -2.0], [8.0, 2.0], [[4.0], [5.0]]))
    name = "the end, where row 0 saw nothing: maximum LOWEST, total 0"
    yield Case(name, scores=None, state=([LOWEST, 1.0], [0.0, 1.0], [[0.0], [2.0]]))
    drawn = random.Random(0)
    for seed in range(6):
        rows, keys, tiles = (drawn.choice(sizes) for sizes in ((1, 4, 16), (2, 16), (1, 3, 5)))
        spread, share, scale = (drawn.choice(x) for x in ([1, 30], [0.0, 0.5], [0.125, 1.0]))
        name = f"{tiles} tiles of {keys} keys, {rows} rows, scale {scale} × log2(e)"
        yield Case(name, shape=(rows, keys, tiles), spread=spread, share=share, factor=scale,
                   seed=seed)  # fmt: skip


def observe(kernels: Any, case: Case, see: Observer) -> None:
    if hasattr(case, "shape"):
        observe_rows(kernels, case, see)
        return
    if case.scores is None:
        observe_end(kernels, [torch.tensor(x) for x in case.state], see)
        return
    scores = torch.tensor(case.scores)
    state = empty(len(scores), 2) if case.state is None else map(torch.tensor, case.state)
    observe_step(kernels, scores, case.scale, tuple(state), see)


def observe_step(
    kernels: Any, scores: Any, scale: float, state: tuple[Any, Any, Any], see: Observer
) -> None:
    with see.call("online_step"):
        weights, maximum, total, out = step(kernels, scores, scale, state, see)
    scaled, (old, old_total, old_out) = scores.double() * scale, (x.double() for x in state)
    new = old.maximum(scaled.amax(dim=1))
    factor, want = (old - new).exp2(), (scaled - new[:, None]).exp2()
    why = "It is the larger of the old maximum and of the row's scores times `scale`."
    see.close("the new maximum", maximum, new.float(), why)
    why = "They are 2^(score × scale - new maximum)."
    see.close("the block of weights", weights, want.float(), why)
    why = "It is the old total, moved to the new maximum, plus the weights of this tile."
    see.close("the new total", total, (old_total * factor + want.sum(dim=1)).float(), why)
    why = "It is the old `out`, moved to the new maximum."
    see.close("out", out, (old_out * factor[:, None]).float(), why)


def observe_end(kernels: Any, state: list[Any], see: Observer) -> None:
    with see.call("finish"):
        out, lse = end(kernels, state, see)
    maximum, total, before = (x.double() for x in state)
    divisor = total.where(total > 0, total.new_ones(()))[:, None]
    why = "It is the accumulator divided by the total; a row that saw nothing keeps its zeros."
    see.close("the output", out, (before / divisor).float(), why)
    want = ((maximum + total.log2()) * math.log(2)).float()
    why = (
        "It is (maximum + log2(total)) × ln 2, the natural logarithm of the whole sum: -inf where "
        "nothing was seen, which tells a merge that this part is empty."
    )
    see.close("the log-sum-exp", lse, want, why)


def observe_rows(kernels: Any, case: Case, see: Observer) -> None:
    """Whole rows, in tiles, from the empty state to the end."""
    (rows, keys, tiles), generator = case.shape, torch.Generator().manual_seed(case.seed)
    scores = torch.randn(rows, tiles * keys, generator=generator) * case.spread
    scores[torch.rand(scores.shape, generator=generator) < case.share] = -INF
    values = torch.randn(tiles * keys, 4, generator=generator)
    state = empty(rows, 4)
    for tile in range(tiles):
        columns = slice(tile * keys, (tile + 1) * keys)
        with see.call("online_step"):
            tile_scores, scale = scores[:, columns], case.factor * LOG2_E
            weights, *state = step(kernels, tile_scores, scale, state, see)
        state[2] = state[2] + weights @ values[columns]
    with see.call("finish"):
        out, lse = end(kernels, state, see)
    exact = scores.double() * case.factor
    want = exact.softmax(dim=1).nan_to_num(0.0) @ values.double()
    why = "Tile by tile the result must be that of the whole row."
    see.close("the output", out, want.float(), why, atol=1e-4)
    see.close("the log-sum-exp", lse, exact.logsumexp(dim=1).float(), why, atol=1e-4)


def empty(rows: int, dim: int) -> tuple[Any, Any, Any]:
    return torch.full((rows,), LOWEST), torch.zeros(rows), torch.zeros(rows, dim)


def step(
    kernels: Any, scores: Any, scale: float, state: Any, see: Observer
) -> tuple[Any, Any, Any, Any]:
    """Run the learner's `online_step` once: weights and the new state."""
    inputs = [spaced(x) for x in (scores, *state)]
    results = [poisoned(*x.shape) for x in inputs]
    names = ["scores", "maximum", "total", "out", "weights", "new maximum", "new total", "new out"]
    arguments = dict(zip(names, inputs + results, strict=True))
    (rows, keys), dim = scores.shape, state[2].shape[1]
    run(
        see, step_kernel, (1,), {**arguments, "scale": scale},
        STEP=kernels.online_step, ROWS=rows, KEYS=keys, DIM=dim,
    )  # fmt: skip
    return tuple(results)


def end(kernels: Any, state: Any, see: Observer) -> tuple[Any, Any]:
    """Run the learner's `finish` once."""
    rows, dim = state[2].shape
    results = poisoned(rows, dim), poisoned(rows)
    names = "maximum", "total", "state", "out", "lse"
    arguments = dict(zip(names, (*map(spaced, state), *results), strict=True))
    run(see, finish_kernel, (1,), arguments, FINISH=kernels.finish, ROWS=rows, DIM=dim)
    return results


def draw(kernels: Any) -> Any:
    """A row of sixteen scores in four tiles, through the learner's step."""
    from yaie.course.viz.attention import OnlineStep, draw_online

    scores = torch.randn(1, 16, generator=torch.Generator().manual_seed(5)) * 1.5
    state = empty(1, 1)
    steps = []
    for start in range(0, 16, 4):
        before = state[0].item()
        _, *state = step(kernels, scores[:, start : start + 4], LOG2_E, state, Observer())
        now, old = (-INF if x <= LOWEST / 2 else x / LOG2_E for x in (state[0].item(), before))
        row = tuple(scores[0].tolist())
        steps.append(OnlineStep(row, start, start + 4, now, state[1].item(), old))
    titles = [f"keys {s.start} to {s.end - 1}" for s in steps]
    return viz.film_strip(steps, draw_online, titles)
