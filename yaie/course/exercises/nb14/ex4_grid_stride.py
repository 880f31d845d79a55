"""14.4: a grid of any size adds the whole vector, every element once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, cheap
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb14.vectors import see_result, vector

THREADS = 256
LARGE = (2**31 - 1) // THREADS  # thread blocks, of which an int still holds all threads


def cases() -> Iterator[KernelCase]:
    for n, blocks in ((2000, 2), (1, 1), (1, 3), (33, 1), (1023, 3), (1025, 4), (4096, 5)):
        yield in_blocks(n, blocks)
    yield in_blocks(2000, 3, ", threads in reverse order", order="reverse")
    yield in_blocks(100_003, 7, checked=False)
    yield in_blocks(1000, LARGE, ", of which the first 4 run here", most_blocks=4)


def in_blocks(n: int, blocks: int, words: str = "", **how: Any) -> KernelCase:
    grid = f"{blocks:,} thread block{'s' * (blocks != 1)} of {THREADS} threads"
    return KernelCase(f"n = {n:,} in {grid}{words}", n=n, blocks=blocks, how=how)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, y = vector(case.n, 1), vector(case.n, 2)
    threads = case.blocks * THREADS
    because = f"The grid has {threads:,} threads: after each element a thread goes on by as many."
    explain = {
        "out_of_bounds": f"The last element is x[{case.n - 1}]: the bound holds in each iteration.",
        "race": (
            "Every element belongs to one thread of the grid. The step has to be the number of all "
            "threads, gridDim.x * blockDim.x."
        ),
    }
    report = see_result(
        see, path, "vector_add_stride_f32", x, y, x + y, case.blocks,
        because=because, explain=explain, **case.how,
    )  # fmt: skip
    if report is not None:
        why = "Let the 32 threads of a warp take 32 neighbors that begin at x[32 × k]."
        cheap(see, report, {"global load": why})
