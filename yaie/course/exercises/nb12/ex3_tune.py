"""12.3: which configurations `tune` tries and when, and whether a trial spoils the output."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import HAS_TRITON, Access, plain_errors, see_strays, watch
from yaie.course.exercises.nb11.tensors import randn

TILES = [(m, n) for m in (16, 64) for n in (32, 128)]
REPEATS = 2  # launches of a trial


def cases() -> Iterator[Case]:
    for fastest in ((64, 32), (16, 128)):
        yield launched(fastest, (40, 70))
    yield launched((64, 128), (40, 70), (40, 70))
    yield launched((16, 32), (40, 70), (90, 70), (7, 70))  # rows change in every step
    yield launched((64, 32), (40, 70), (40, 30), (40, 70), (9, 30))
    yield launched((64, 32), (128, 64))  # whole tiles


def launched(fastest: tuple[int, int], *shapes: tuple[int, int]) -> Case:
    words = ", then ".join(f"{rows} × {columns}" for rows, columns in shapes)
    name = f"inputs of {words}, a tile of {fastest[0]} × {fastest[1]} is fastest"
    return Case(name, fastest=fastest, shapes=shapes)


class Clock:
    """Stands in for Triton's: launches, notes the configuration, reports one tile as fastest."""

    def __init__(self, fastest: tuple[int, int]) -> None:
        self.fastest = fastest
        self.trials: list[tuple] = []
        self.last: tuple = ()
        self.grid: tuple = ()  # of the last launch

    def __call__(self, call: Any, quantiles: Any = None) -> list[float]:
        for _ in range(REPEATS):
            call()
        self.trials.append(self.last)
        return [1.0 if self.last[:2] == self.fastest else 2.0] * 3


@contextmanager
def timed(tune: Any, fastest: tuple[int, int]) -> Iterator[tuple[Any, Clock]]:
    """The tuned kernel, and the clock, which knows what was launched last."""
    from yaie.course.lessons.ops.triton.tuned import column_sum_kernel as kernel

    clock = Clock(fastest)
    run = getattr(type(kernel), "run", None)

    def noted(self: Any, *arguments: Any, **constants: Any) -> Any:
        clock.last = tuple(constants.get(x) for x in ("BLOCK_M", "BLOCK_N", "num_warps"))
        grid = constants.get("grid", ())
        given = {**dict(zip(self.arg_names, arguments, strict=False)), **constants}
        clock.grid = tuple(grid(given) if callable(grid) else grid)
        return run(self, *arguments, **constants)

    if not HAS_TRITON:
        yield tune(kernel, clock), clock
        return
    with patch.object(type(kernel), "run", noted), plain_errors():
        yield tune(kernel, clock), clock


def observe(mine: Any, case: Case, see: Observer) -> None:
    with see.call("tune"), timed(mine.tune, case.fastest) as (kernel, clock):
        key, names = getattr(kernel, "keys", []), getattr(kernel, "arg_names", [])
        unknown = [name for name in key if name not in names]
        problem = f"{unknown[0]!r} is no parameter of the kernel" if unknown else ""
        see.note("the key:", unknown, problem, f"Its parameters are {', '.join(names)}.")
        for number, (rows, columns) in enumerate(case.shapes):
            x = randn(rows, columns, seed=number)
            before = len(clock.trials)
            with (
                watch() as trace,
                see.call("column_sum"),
                patch.object(torch, "empty", unwritten),
            ):
                out = mine.column_sum(x, kernel)
            see_strays(see, trace, beyond)
            observe_launch(see, case, number, clock, before)
            why = (
                f"A trial launches the kernel {REPEATS} times, and each launch adds to the output: "
                "reset_to_zero. The grid must cover x with any tile."
            )
            name = f"the result of launch {number + 1}"
            see.close(name, out, x.sum(dim=0), why, rtol=1e-4, atol=1e-4)
            grid = -(-rows // case.fastest[0]), -(-columns // case.fastest[1])
            why = "A program beyond the last tile is launched for nothing."
            see.equal(f"the grid of launch {number + 1}", clock.grid[:2], grid, why)


def beyond(access: Access) -> str:
    return "x has rows × columns elements, row after row, and out one per column."


def unwritten(*size: Any, **options: Any) -> Any:
    """`torch.empty` whose memory always holds something: ones."""
    return torch.ones(*size, **options)


def observe_launch(see: Observer, case: Case, number: int, clock: Clock, before: int) -> None:
    """What was timed in one launch, and what ran after it."""
    tried, columns = clock.trials[before:], case.shapes[number][1]
    known = columns in [shape[1] for shape in case.shapes[:number]]
    why = (
        f"{columns} columns have been timed before; the number of rows is not in the key."
        if known
        else f"{columns} columns are new, so each of the four configurations is timed once."
    )
    name = f"(BLOCK_M, BLOCK_N, num_warps) timed in launch {number + 1}"
    see.equal(name, sorted(tried), [] if known else [(*tile, 4) for tile in TILES], why)
    why = "The fastest of those that were timed is launched."
    see.equal(f"the configuration of launch {number + 1}", clock.last[:2], case.fastest, why)


def draw(mine: Any) -> Any:
    """Configurations timed by launch: rows change in every step, columns once."""
    shapes = [(9, 70), (40, 70), (12, 70), (40, 30), (70, 30), (11, 70)]
    counts = []
    with timed(mine.tune, (16, 32)) as (kernel, clock):
        for rows, columns in shapes:
            before = len(clock.trials)
            mine.column_sum(randn(rows, columns), kernel)
            counts.append(len(clock.trials) - before)
    names = [f"{rows} × {columns}" for rows, columns in shapes]
    title, bars = "configurations timed in each launch", list(enumerate(counts))
    chart = viz.Chart(title, "shape of x, launch after launch", "", {"": bars}, names=names)
    return viz.draw_charts([chart], height=1.2)
