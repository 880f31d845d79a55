"""14.2: four elements per access, a tail, and addresses that do not allow it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, poisoned, requests
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb14.vectors import draw_loads, see_grid, see_result, vector

NAME = "vector_add_float4_f32"


def cases() -> Iterator[KernelCase]:
    for n in (3000, 1027, 1, 2, 3, 4, 5, 31, 33, 1023, 4093, 8192):
        yield KernelCase(f"n = {n:,}", n=n, offsets=(0, 0, 0))
    ways = ((1001, (1, 1, 1)), (1001, (1, 0, 0)), (1001, (0, 2, 0)), (1001, (0, 0, 3)))
    for n, offsets in (*ways, (257, (1, 1, 1))):
        begin = ", ".join(f"{4 * o} ({t})" for t, o in zip(("x", "y", "out"), offsets, strict=True))
        words = f"n = {n:,} with addresses that are past a multiple of 16 by {begin} bytes"
        yield KernelCase(words, n=n, offsets=offsets)
    reverse = "n = 4,093, threads in reverse order"
    yield KernelCase(reverse, n=4093, offsets=(0, 0, 0), how={"order": "reverse"})
    yield KernelCase("n = 100,003", n=100_003, offsets=(0, 0, 0), how={"checked": False})


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    n, offsets = case.n, case.offsets
    x, y = vector(n + offsets[0], 1)[offsets[0] :], vector(n + offsets[1], 2)[offsets[1] :]
    out = poisoned(n + offsets[2])[offsets[2] :]
    because = f"{n:,} is {n // 4:,} times 4, and {n % 4} more."
    explain = {"misaligned": "A float4 is loaded and stored at addresses that are multiples of 16."}
    report = see_result(
        see, path, NAME, x, y, x + y, out=out, because=because, explain=explain, **case.how
    )
    if report is not None and not any(offsets) and n >= 1024:
        for argument, kind in (("x", "load"), ("y", "load"), ("out", "store")):
            wide = requests(report, name=argument, kind=kind, size=16)
            each = f"Each {kind} of {argument} can have 16 bytes: go through pointers to float4."
            see.true(f"the {kind}s of {argument}", wide, "never have 16 bytes", each)
        single = requests(report, name="x", kind="load", size=4)
        tail = "Only the elements of a piece that is not whole are added one by one."
        see.at_most("requests of warps for single elements of x", single, n % 4, tail)
    if report is not None:
        see_grid(see, report, n, per_thread=1 if any(offsets) else 4)


def draw(path: Path) -> Any:
    return draw_loads(path, NAME, 1024, size=16)
