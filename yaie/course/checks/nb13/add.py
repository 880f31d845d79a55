"""The check of the first kernel: one element a thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb13.common import WARP, add, compare, is_far_off, unwritten_tail, vector
from yaie.course.core.expect import fail, given

NAME = "vector_add_scalar_f32"


def check_vector_add(path: Path) -> None:
    add_once(path, 1000)
    for n in (1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2048):
        add_once(path, n)
    add_once(path, 1025, order="reverse")
    add_once(path, 100_003, checked=False)


def add_once(path: Path, n: int, **options: Any) -> None:
    x, y = vector(n, 1), vector(n, 2)
    what = f"n = {n:,}"
    explain = {"out_of_bounds": lambda finding: told_bound(finding, n)}
    out, report = add(path, NAME, x, y, what=what, explain=explain, **options)
    first = unwritten_tail(out)
    because = ""
    if first is not None:
        because = f"Nothing from {first:,} on was written: the grid has too few thread blocks."
        if first == n // 256 * 256:
            because += f" {n:,} / 256 rounds down, but what is left needs a thread block too."
    compare(out, x + y, what, because=because)
    if report is not None:
        whole_warps(report, n, what)


def told_bound(finding: Any, n: int) -> str:
    if is_far_off(finding):
        return f"The index is far beyond the {n:,} elements, or negative."
    beyond = finding.offset // 4 - n
    if beyond < 0:
        return "The index is negative."
    if finding.count == 1 and beyond == 0:
        return (
            f"The last element is x[{n - 1}], and there is no x[{n}]: a bound of `i <= n` lets one "
            "thread too many in."
        )
    return (
        f"The thread blocks have more threads than x has elements ({n}). Those that are left over "
        "must touch nothing: is there a bound?"
    )


def whole_warps(report: Any, n: int, what: str) -> None:
    """Thread blocks of one thread compute the same, with a warp for every element."""
    fewest = -(-n // WARP)
    for access in report.accesses:
        if access.name == "x" and access.requests > fewest + fewest // 4 + 1:
            with given(what):
                fail(
                    f"out is right, but x is read in {access.requests:,} requests of warps where "
                    f"{fewest:,} would do: the 32 threads of a warp ask together. Launch thread "
                    "blocks of THREADS threads, and let neighbors take neighboring elements."
                )
