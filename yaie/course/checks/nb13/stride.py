"""The check of the grid-stride loop: any grid does the whole vector, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb13.common import add, compare, unwritten_tail, vector
from yaie.course.core.expect import fail, given

NAME = "vector_add_stride_f32"


def check_stride(path: Path) -> None:
    for n, thread_blocks in ((2000, 2), (1, 1), (1, 3), (33, 1), (1023, 3), (1025, 4), (4096, 5)):
        add_once(path, n, thread_blocks)
    add_once(path, 2000, 3, order="reverse")
    add_once(path, 100_003, 7, checked=False)


def add_once(path: Path, n: int, thread_blocks: int, **options: Any) -> None:
    x, y = vector(n, 1), vector(n, 2)
    what = f"n = {n:,} in {thread_blocks} thread block{'s' * (thread_blocks != 1)} of 256 threads"
    explain = {
        "race": (
            "Two threads take the same element, and both happen to write the same sum: no "
            "comparison notices. The step has to pass all threads of the grid, "
            "gridDim.x * blockDim.x."
        ),
        "out_of_bounds": f"The last element is x[{n - 1}]: the bound has to hold in every turn.",
        "time_limit": "Does every turn of the loop go on to another element?",
    }
    out, report = add(path, NAME, x, y, thread_blocks, what=what, explain=explain, **options)
    compare(out, x + y, what, because=told_missing(out, thread_blocks))
    if report is not None:
        side_by_side(report, what)


def told_missing(out: Any, thread_blocks: int) -> str:
    first = unwritten_tail(out)
    if first == 256 * thread_blocks:
        return (
            f"The grid has {first:,} threads, and each took one element. The rest is theirs as "
            "well: a loop."
        )
    if out.isnan().any():
        return "Some elements belong to no thread: the step is longer than the grid."
    return ""


def side_by_side(report: Any, what: str) -> None:
    for access in report.accesses:
        if access.name == "x" and access.units > access.ideal_units:
            with given(what):
                fail(
                    f"the result is right, but a request of a warp needs {access.per_request:.3g} "
                    f"sectors of x where {access.ideal:.3g} would do: each thread has neighbors to "
                    "itself. Let the 32 threads of a warp take 32 neighbors, and then all step."
                )
