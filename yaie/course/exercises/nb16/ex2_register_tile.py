"""16.2: 64 sums per thread, with 4 loads of 16 bytes per step, between two barriers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, accesses, draw_lines, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import factors, product_of, see_barriers, see_product

NAME = "matmul_register_tile"
TILE, DEPTH, WARPS = 128, 8, 8
WAVEFRONTS = 12  # of the four loads of a step: 2 + 2 of a, 4 + 4 of b
SIZES = ((128, 128, 8), (128, 128, 24), (3, 5, 9))
CUT_OFF = ((130, 70, 20), (129, 140, 33))
BECAUSE = (
    "In each step, sums[down][across][i][j] takes the product of element i of the thread's group "
    "`down` of a column of a and element j of its group `across` of a row of b."
)
EXPLAIN = {
    "race": "Wait before the tiles are read, and before the next iteration writes them.",
    "out_of_bounds": (
        "A tile has DEPTH = 8 rows. The thread's elements begin at y and HALF + y in a_tile, at x "
        "and HALF + x in b_tile."
    ),
    "misaligned": "load16 needs an index that is a multiple of 4, as x, y and HALF are.",
    "uninitialized": "Before the tiles are read, all threads have to have written them.",
}


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(*(product_of(*size) for size in SIZES))
    for size in CUT_OFF:
        yield product_of(*size)
    for suffix in ("f16", "bf16"):
        yield product_of(130, 72, 40, suffix)
    yield product_of(TILE, TILE, 16, costs=True)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    report = see_product(see, path, NAME, case, EXPLAIN, BECAUSE)
    if case.costs:
        loads = accesses(report, memory="shared", kind="load")
        requests = sum(access.requests for access in loads)
        wavefronts = sum(access.units for access in loads)
        steps = case.size[2] * WARPS
        four = "load16 loads four neighbors together, and they stay in registers for 64 products."
        see.at_most("a warp's requests to shared memory per step", requests / steps, 4, four)
        row = "Read four neighbors of a row, at y and HALF + y, and at x and HALF + x."
        see.at_most("the wavefronts of these loads", wavefronts / steps, WAVEFRONTS, row)
        see_barriers(see, report, case.size[2] // DEPTH)


def draw(path: Path) -> Any:
    """What each line costs."""
    size = (TILE, TILE, 16)
    return draw_lines(path, f"{NAME}_f32", *factors(*size), *size)
