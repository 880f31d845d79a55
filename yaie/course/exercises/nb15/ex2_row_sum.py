"""15.2: a tree of any width, row after row, with a barrier wherever one is due."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb15.rows import COSTS, FAR, far, far_row, on_grid, rows_of

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


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*map(on_grid, SHAPES))
    for suffix in cuda.SUFFIXES.values():
        yield on_grid((2, 4096, 2, 1), ", all ones", suffix, make=ones, how={"checked": False})
    yield on_grid((4, 512, 2, 128), ", and its costs", costs=True)
    yield far_row()


def ones(rows: int, columns: int, suffix: str) -> Any:
    return torch.ones(rows, columns, dtype=cuda.dtype_of(suffix))


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, columns, _, threads = case.shape
    x, out = case.make(rows, columns, case.suffix), cuda.poisoned(rows)
    name = f"row_sum_shared_{case.suffix}"
    report = cuda.run(see, path, name, x, out, *case.shape, explain=EXPLAIN, **case.how)
    if case.make is far:
        see.equal("the last sum", out[-1].item(), float(columns), FAR)
        return
    whole = f"Each sum is one of {columns:,} numbers, added in float32."
    see.close("out", out, x.double().sum(-1).float(), cuda.unwritten(out, whole), rtol=1e-5)
    if case.costs:
        cuda.cheap(see, report, COSTS)
        per_row = cuda.requests(report, memory="shared") / rows
        meet = "All threads share a row's columns, and their sums meet in `partial`."
        see.true("the kernel", per_row, "does not use `partial`", meet)
        tree = f"A tree over {threads} places has 7 steps."
        see.at_most("requests of warps to shared memory per row", per_row, 100, tree)


def draw(path: Path) -> Any:
    x, out = rows_of(4, 512), cuda.poisoned(4)
    return cuda.draw_lines(path, "row_sum_shared_f32", x, out, 4, 512, 2, 128)
