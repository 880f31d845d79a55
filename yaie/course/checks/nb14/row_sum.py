"""The check of 14.2: a tree of any width, row after row, with a barrier wherever one is due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    dtypes,
    element_of,
    on_every_schedule,
    race_in_words,
    report_of,
    require_cheap,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, fail, given

if TYPE_CHECKING:
    from yaie.emulator import Report
    from yaie.emulator.checks import Finding

# rows, columns, thread blocks, threads of each
CASES = (
    *((1, 64, 1, 64), (1, 200, 1, 32), (5, 70, 2, 64), (3, 33, 3, 64)),
    *(
        (2, 300, 2, 96),
        (4, 10, 1, 7),
        (2, 5, 2, 1),
        (3, 1025, 2, 100),
        (0, 8, 1, 32),
        (2, 0, 1, 32),
    ),
)

COSTS = {
    "global load": (
        "Neighboring threads should read neighboring columns: a thread's columns are "
        "threadIdx.x, threadIdx.x + blockDim.x, …, not a piece of the row in a row."
    ),
    "global store": "One thread writes one number for each row.",
    "shared load": (
        "The places that are added in one step lie in too few banks. Add the upper half of the "
        "places to the lower half, so that neighbors read neighbors."
    ),
    "shared store": (
        "The places that are written in one step lie in too few banks. Add the upper half of the "
        "places to the lower half, so that neighbors write neighbors."
    ),
}
IN_HALF = (
    "The sum of 4,096 ones in float16 stops at 2,048, where 2,048 + 1 rounds to 2,048. Add in "
    "float, whatever T is."
)


def check_row_sum(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for case in CASES:
            run(path, *case, order, explain)

    on_every_schedule(values)
    for suffix in dtypes():
        ones(path, suffix)
    x, out = inputs(4, 512)
    with given("4 × 512, 2 thread blocks of 128 threads"):
        report = report_of(path, "row_sum_shared_f32", x, out, 4, 512, 2, 128)
        require_cheap(report, COSTS)
        require_tree(report)


def require_tree(report: Report) -> None:
    """Seven steps for 128 threads, not 128: a few requests to shared memory for each row."""
    requests = sum(a.requests for a in report.accesses if a.memory == "shared") / 4
    if requests == 0:
        fail(
            "the sums are right, but no thread used `partial`. All threads share a row's columns, "
            "and their sums meet there."
        )
    if requests > 100:
        fail(
            f"the sums are right, but adding up 128 places takes {requests:g} requests to shared "
            "memory for each row: one thread does it, place after place, and the others watch. A "
            "tree needs 7 steps."
        )


def inputs(rows: int, columns: int) -> tuple[Any, Any]:
    import torch

    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(columns)) + 0.5
    return x, poisoned(rows)


def run(
    path: Path, rows: int, columns: int, blocks: int, threads: int, order: str, explain: Explain
) -> None:
    x, out = inputs(rows, columns)
    words = f"{rows} × {columns}, {blocks} thread block{'s' * (blocks > 1)} of {threads} threads"
    with given(f"{words}, in {order} order"):
        launch(
            path, "row_sum_shared_f32", x, out, rows, columns, blocks, threads,
            explain=explain, order=order,
        )  # fmt: skip
        compare(x, out, blocks, threads)


def compare(x: Any, out: Any, blocks: int, threads: int) -> None:
    columns = x.shape[1]
    because = ""
    if out.isnan().any():
        because = (
            "out holds NaN before the launch: nobody wrote there, or somebody added to it. Each "
            "thread block has the rows blockIdx.x, blockIdx.x + gridDim.x, …"
        )
    elif threads & (threads - 1):
        because = (
            f"{threads} places are no power of two: halving gives an odd number at some step, and "
            "then the one in the middle must not be lost."
        )
    gone_on = x.sum(-1)
    for block in range(blocks):
        gone_on[block::blocks] = gone_on[block::blocks].cumsum(0)
    mistakes = [
        (x[:, :threads].sum(-1), f"That is the sum of the first {threads} columns: a thread takes "
         f"more than one column if there are {columns}."),
        (x[:, ::threads].sum(-1), "That is thread 0's part alone: the others' are still in shared "
         "memory."),
        (gone_on, "The sum of a row goes on into the thread block's next: begin each row with 0."),
        (x.mean(-1), "That is the mean."),
    ]  # fmt: skip
    close(out, x.double().sum(-1).float(), "out", because=because, mistakes=mistakes, rtol=1e-5)


def ones(path: Path, suffix: str) -> None:
    """4,096 ones: a float16 sum of them gets stuck."""
    import torch

    x, out = torch.ones(2, 4096, dtype=dtypes()[suffix]), poisoned(2)
    with given(f"2 × 4,096 ones of {suffix}, 2 thread blocks of 1 thread"):
        launch(path, f"row_sum_shared_{suffix}", x, out, 2, 4096, 2, 1, checked=False)
        close(out, torch.full((2,), 4096.0), "out", because=IN_HALF)


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Two threads write the same sum: one of each thread block is enough."
        words = race_in_words(found, element_of(found, path, {}, 4))
        if not races(path, rows=1):
            if found.line == found.other_line:
                return f"{words} It happens where a step begins with an odd number of places."
            return (
                f"{words} The reader is still at the row before: the next row may be "
                "written when all threads are done with this one."
            )
        if found.line == found.other_line:
            return f"{words} Between two steps of the tree all threads have to wait."
        return f"{words} The tree may begin when all threads have written their sums."

    return {
        "race": race,
        "uninitialized": (
            "A place that no thread has written holds whatever was there. There may be more "
            "threads than columns: every thread writes its place, a 0 if it had no column."
        ),
        "divergent_barrier": (
            "Threads that have nothing to add in a step, or no column, still have to come to its "
            "__syncthreads(): keep it out of the `if`."
        ),
        "out_of_bounds": lambda found: (
            "There are as many places as threads."
            if found.memory == "shared"
            else "A row has `columns` elements, the last one at columns - 1."
        ),
    }


def races(path: Path, rows: int) -> bool:
    """Whether there are races where one thread block of 64 threads has these rows."""
    x, out = inputs(rows, 64)
    return bool(report_of(path, "row_sum_shared_f32", x, out, rows, 64, 1, 64).races)


def draw_row_sum(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    x, out = inputs(4, 512)
    return draw_costs(report_of(path, "row_sum_shared_f32", x, out, 4, 512, 2, 128))
