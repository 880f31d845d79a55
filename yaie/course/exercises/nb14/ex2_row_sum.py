"""14.2: a tree of any width, row after row, with a barrier wherever one is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import (
    SUFFIXES,
    cheap,
    draw_lines,
    in_every_order,
    poisoned,
    run,
    unwritten,
)
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb14.rows import COSTS, DTYPES, MANY, far, on_grid, rows_of

# rows, columns, thread blocks, threads of each
SHAPES = (
    *((1, 64, 1, 64), (1, 200, 1, 32), (5, 70, 2, 64), (3, 33, 3, 64), (2, 300, 2, 96)),
    *((4, 10, 1, 7), (2, 5, 2, 1), (3, 1025, 2, 100), (0, 8, 1, 32), (2, 0, 1, 32)),
)
EXPLAIN = {
    "race": "Wait before the tree, between its steps, and before the next row is written.",
    "divergent_barrier": "Threads that have nothing to add come to the barrier, too.",
    "out_of_bounds": "A row has `columns` elements, and `partial` one place for each thread.",
}


def cases() -> Iterator[Case]:
    yield from in_every_order(*map(on_grid, SHAPES))
    for suffix in SUFFIXES.values():
        shape = (2, 4096, 2, 1)
        yield on_grid(shape, suffix=suffix, words=", all ones", what=ones, how={"checked": False})
    yield on_grid((4, 512, 2, 128), words=", and its costs", costs=True)
    words, last = ", of which the last one runs here", {"checked": False, "most_blocks": 1}
    yield on_grid((MANY, 1024, MANY, 32), words, "f16", what=far, order="reverse", how=last)


def ones(rows: int, columns: int, suffix: str) -> Any:
    return torch.ones(rows, columns, dtype=getattr(torch, DTYPES[suffix]))


def observe(path: Path, case: Case, see: Observer) -> None:
    make = getattr(case, "what", rows_of)
    x, out = make(case.rows, case.columns, case.suffix), poisoned(case.rows)
    if x is None:
        return
    report = run(
        see, path, f"row_sum_shared_{case.suffix}", x, out,
        case.rows, case.columns, case.blocks, case.threads,
        explain=EXPLAIN, order=case.order, **case.how,
    )  # fmt: skip
    if make is far:
        past = f"Row {case.rows - 1:,} begins at element 2³¹, beyond what an int can hold."
        see.equal("the last sum", out[-1].item(), float(case.columns), past)
        return
    whole = f"Each sum is one of {case.columns:,} numbers, added in float32."
    want = x.double().sum(-1).float()
    see.close("out", out, want, unwritten(out, whole), rtol=1e-5)
    if case.costs:
        cheap(see, report, COSTS)
        per_row = sum(a.requests for a in report.accesses if a.memory == "shared") / case.rows
        meet = "All threads share a row's columns, and their sums meet in `partial`."
        see.true("the kernel", per_row, "does not use `partial`", meet)
        tree = f"A tree over {case.threads} places has 7 steps."
        see.at_most("requests of warps to shared memory per row", per_row, 100, tree)


def draw(path: Path) -> Any:
    x, out = rows_of(4, 512), poisoned(4)
    return draw_lines(path, "row_sum_shared_f32", x, out, 4, 512, 2, 128)
