"""The check of 14.1: right at every edge, no race, 4 sectors and 1 wavefront a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    dtypes,
    element_of,
    on_every_schedule,
    plain,
    race_in_words,
    report_of,
    require_cheap,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import equal, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

CONSTANTS = {"TILE": 32, "STEP": 8, "WARP": 32}
SIZES = ((32, 32), (64, 96), (40, 70), (70, 40), (1, 33), (33, 1), (31, 64))

EDGE = (
    "In `in` the bounds are rows for the row and columns for the column. In the second copy the "
    "threads have changed places: whichever of its two indices now comes from threadIdx.x, a row "
    "is compared with rows and a column with columns."
)
INDEX = (
    "There is no edge here: all tiles are whole. A row of `in` has `columns` elements, a row of "
    "`out` has `rows`; and the tile that is blockIdx.x across and blockIdx.y down in `in` is "
    "blockIdx.y across and blockIdx.x down in `out`."
)
BOUNDS = " In the bounds, too, a row is compared with rows and a column with columns."
UNFILLED = (
    "That cell of the tile was never filled. 8 rows of threads fill 32 rows of the tile: each "
    "thread takes every eighth, in both copies."
)
COSTS = {
    "global load": "The 32 threads of a warp should read 32 neighbors of a row of `in`.",
    "global store": (
        "The 32 threads of a warp write down a column of `out`. Let them write a row of it, and "
        "do the turn in the tile: the thread that reads tile[a][b] need not be the one that wrote "
        "it."
    ),
    "shared load": (
        "The words that they read from the tile lie in too few of the 32 banks. If its rows "
        "are 32 words long, all of a column is in one bank; rows that are one word longer shift "
        "each by one bank."
    ),
    "shared store": (
        "The words that they write to the tile lie in too few of the 32 banks: let neighbors "
        "write neighbors, or pad the rows of the tile."
    ),
}
HALF_WORDS = (
    "Banks count words of 4 bytes, not elements: one element of float16 more is half a word. "
    "4 / sizeof(T) elements are a word in every dtype."
)


def check_transpose(path: Path) -> None:
    def values(order: str) -> None:
        for rows, columns in SIZES:
            run(path, rows, columns, "f32", order)

    on_every_schedule(values)
    for suffix in dtypes():
        run(path, 1823, 781, suffix, "forward", checked=False)
        run(path, 64, 96, suffix, "forward")
    costs(path, "f32", COSTS)
    costs(path, "f16", {**COSTS, "shared load": HALF_WORDS, "shared store": HALF_WORDS})


def run(path: Path, rows: int, columns: int, suffix: str, order: str, checked: bool = True) -> None:
    x, out = matrices(rows, columns, suffix)
    name = f"transpose_{suffix}"
    with given(f"{rows} × {columns}, threads in {order} order"):
        if checked:
            explain = explanations(path, rows, columns)
            launch(path, name, x, out, rows, columns, explain=explain, order=order)
        else:
            plain(path, name, x, out, rows, columns, order=order)
        wanted = x.t().contiguous()
        because = "Every element is written exactly once: out[column][row] = in[row][column]."
        if out.isnan().any():
            where = place(rows, columns)
            because = f"NaN was there before: nobody wrote it. {where}{BOUNDS * (where == INDEX)}"
        mistakes = [(x.reshape(columns, rows), "That is `in` as it was: nothing has been turned.")]
        equal(out, wanted, "out", because=because, mistakes=mistakes)


def matrices(rows: int, columns: int, suffix: str) -> tuple[Any, Any]:
    import torch

    dtype = dtypes()[suffix]
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)
    return x, poisoned(columns, rows, dtype=dtype)


def costs(path: Path, suffix: str, told: dict[str, str]) -> None:
    x, out = matrices(64, 96, suffix)
    with given(f"64 × 96 elements of {suffix}"):
        require_cheap(report_of(path, f"transpose_{suffix}", x, out, 64, 96), told)


def place(rows: int, columns: int) -> str:
    """What to look at if an element went astray: the edge, if there is one."""
    return EDGE if rows % 32 or columns % 32 else INDEX


def explanations(path: Path, rows: int, columns: int) -> Explain:
    where = place(rows, columns)

    def race(found: Finding) -> str:
        if found.memory == "global":
            return f"Two threads write the same element of out. {where}"
        element = element_of(found, path, CONSTANTS, 4)
        return (
            f"{race_in_words(found, element)} The tile may be read when all threads have filled it."
        )

    return {
        "race": race,
        "out_of_bounds": lambda found: (
            where if found.memory == "global" else "The tile ends there."
        ),
        "uninitialized": (
            f"That cell of the tile was never filled. {EDGE}" if where == EDGE else UNFILLED
        ),
        "divergent_barrier": (
            "At the edge of the matrix some threads have no element, and so they never came here: "
            "__syncthreads() stands outside of every `if` and every loop that not all threads take."
        ),
    }


def draw_transpose(path: Path) -> Any:
    """What a warp reads from the tile, and what it writes to `out`."""
    from functools import partial

    from yaie.course.viz.access import draw_access
    from yaie.course.viz.film import compose

    x, out = matrices(64, 96, "f32")
    report = report_of(path, "transpose_f32", x, out, 64, 96)
    chosen = [
        max((a for a in report.accesses if (a.memory, a.kind) == wanted), key=lambda a: a.requests)
        for wanted in (("shared", "load"), ("global", "store"))
    ]
    return compose([partial(draw_access, access) for access in chosen])
