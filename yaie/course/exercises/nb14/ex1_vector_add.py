"""14.1: a first kernel, its index, its bound and its launch."""

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, requests
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb14.vectors import WARP, see_grid, see_result, vector


def cases() -> Iterator[KernelCase]:
    for n in (1000, 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2048):
        yield KernelCase(f"n = {n:,}", n=n)
    yield KernelCase("n = 1,025, threads in reverse order", n=1025, how={"order": "reverse"})
    yield KernelCase("n = 100,003", n=100_003, how={"checked": False})


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, y = vector(case.n, 1), vector(case.n, 2)
    report = see_result(see, path, "vector_add_scalar_f32", x, y, x + y, **case.how)
    if report is not None:
        fewest = -(-case.n // WARP)
        together = f"The 32 threads of a warp load together: {fewest:,} requests are enough."
        most = fewest + fewest // 4 + 1
        reads = requests(report, name="x", kind="load")
        see.at_most("requests of warps to read x", reads, most, together)
        see_grid(see, report, case.n)
