"""The check of the addition by float4: the tail, and addresses that do not allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb13.common import WARP, add, compare, unwritten_tail, vector
from yaie.course.core.expect import fail, given

NAME = "vector_add_float4_f32"
UNALIGNED = (
    "A float4 is loaded and stored at addresses that are multiples of 16, and a slice may begin "
    "anywhere. Ask is_aligned about all three pointers, and let vector_add do the work where one "
    "is not."
)


def check_float4(path: Path) -> None:
    for n in (3000, 1027, 1, 2, 3, 4, 5, 31, 33, 1023, 4093, 8192):
        add_once(path, n)
    for offsets in ((1, 1, 1), (1, 0, 0), (0, 2, 0), (0, 0, 3)):
        add_once(path, 1001, offsets)
    add_once(path, 4093, order="reverse")
    add_once(path, 100_003, checked=False)


def add_once(path: Path, n: int, offsets: tuple[int, int, int] = (0, 0, 0), **options: Any) -> None:
    """Add slices that begin `offsets` elements behind an aligned address: x, y and out."""
    from yaie.course.core.cuda import launch, poisoned

    x, y = vector(n + offsets[0], 1)[offsets[0] :], vector(n + offsets[1], 2)[offsets[1] :]
    what = f"n = {n:,}"
    if any(offsets):
        begin = ", ".join(f"{4 * o} ({t})" for t, o in zip(("x", "y", "out"), offsets, strict=True))
        what += f" with addresses that are past a multiple of 16 by {begin} bytes"
    explain = {
        "out_of_bounds": lambda finding: told_bound(finding, n),
        "race": (
            "Neighbors overlap: a thread has four elements, so the next one begins four elements "
            "later."
        ),
        "misaligned": UNALIGNED if any(offsets) else "A piece begins at every fourth element.",
    }
    if offsets[2]:  # the output is a slice as well
        out = poisoned(n + offsets[2])[offsets[2] :]
        with given(what):
            report = launch(path, NAME, x, y, out, n, explain=explain)
    else:
        out, report = add(path, NAME, x, y, what=what, explain=explain, **options)
    compare(out, x + y, what, because=told_missing(out, n) or told_member(out != x + y))
    if report is not None and not any(offsets) and n >= 1024:
        four_at_once(report, n, what)


def told_bound(finding: Any, n: int) -> str:
    if " of 16 bytes" in finding.message:
        if finding.offset >= 4 * n or finding.count > 1:
            return (
                "A float4 past the end. n counts floats, not float4s: there are n / 4 of those. "
                "The four elements from `first` on exist if first + 4 <= n."
            )
        return (
            f"A float4 that begins inside and ends outside: {n} is no multiple of 4. The four "
            "elements from `first` on exist only if first + 4 <= n; the rest are added one by one."
        )
    return "The elements of the tail end at n - 1."


def told_missing(out: Any, n: int) -> str:
    first = unwritten_tail(out)
    if first is None:
        return ""
    if first == n // 4 * 4:
        return (
            f"{n:,} is {n // 4:,} times 4, and {n % 4} more. No float4 reaches the elements from "
            f"{first:,} on: somebody has to add them one by one."
        )
    return (
        f"Nothing from element {first:,} on was written: the grid has too few thread blocks. One "
        "covers 4 × THREADS elements, and the division has to round up."
    )


def told_member(wrong: Any) -> str:
    """Which member of the float4s is wrong, if it is one."""
    members = {int(i) % 4 for i in wrong.nonzero()}
    if len(members) != 1 or int(wrong.sum()) < 4:
        return ""
    member = members.pop()
    return f"Wrong are elements 4k + {member} and no others: look at the member {'xyzw'[member]}."


def four_at_once(report: Any, n: int, what: str) -> None:
    for name, kind in (("x", "load"), ("y", "load"), ("out", "store")):
        wide = [a for a in report.accesses if (a.name, a.kind, a.size) == (name, kind, 16)]
        if not wide:
            requests = sum(a.requests for a in report.accesses if (a.name, a.kind) == (name, kind))
            with given(what):
                fail(
                    f"the result is right, but no {kind} of {name} has 16 bytes: {requests:,} "
                    f"requests of warps where {-(-n // (4 * WARP)):,} would do. Read and write "
                    "through pointers to float4."
                )


def draw_float4(path: Path) -> Any:
    from yaie.course.viz.access import draw_access

    x, y = vector(1024, 1), vector(1024, 2)
    _, report = add(path, NAME, x, y, what="n = 1,024", explain={})
    loads = [a for a in report.accesses if a.name == "x" and a.size == 16]
    return draw_access(loads[0])
