"""16.4: which rows a warp points ldmatrix at, then the product with every access checked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, cheap, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import product_of, see_product
from yaie.course.lessons.data_nb16 import Asked, asked_rows

NAME = "matmul_mma"
WARP, STEP = 5, 1  # the warp and the step that are followed
ROWS_A, CHUNKS_A = range(128, 192), range(2, 4)  # of it: warp_row is 128, warp_column 64
ROWS_B, CHUNKS_B = range(16, 32), range(8, 16)
ORDERED = (40, 136, 72)
SIZES = ((256, 128, 32), (8, 8, 32), (16, 24, 0), (264, 8, 96))
BECAUSE = (
    "sums[i][j] is the product of rows 16 × i on of the warp and columns 8 × j on, in the layout "
    "of mma.sync."
)
GIVE = "Lane l passes the address of row l % 8 of matrix l / 8, whatever it receives."
EXPLAIN = {
    "race": "load_fragments only reads, and multiply touches registers alone.",
    "pending_copy": "Read the tiles at a_tile and b_tile: another stage is still being copied.",
    "uninitialized": "A row of a's tile has A_CHUNKS chunks, a row of b's tile B_CHUNKS.",
    "misaligned": "ldmatrix takes the address of a chunk, swizzle(…) * CHUNK numbers on.",
    "out_of_bounds": "A row of a's tile has A_CHUNKS chunks, a row of b's tile B_CHUNKS.",
}
MEET = "The swizzle puts the same chunk of 8 consecutive rows in different banks."


def cases() -> Iterator[KernelCase]:
    yield KernelCase(f"step {STEP} of warp {WARP}, with warp_row 128 and warp_column 64", size=None)
    yield from in_every_order(product_of(*ORDERED, "f16"))
    for size in SIZES:
        yield product_of(*size, "f16", costs=size == SIZES[0])
    yield product_of(*ORDERED, "bf16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size:
        report = see_product(see, path, NAME, case, EXPLAIN, BECAUSE)
        if case.costs:
            cheap(see, report, {"shared load": MEET})
        return
    asked = asked_rows(path, WARP)[STEP]
    see_tile(see, "a", asked, ROWS_A, CHUNKS_A)
    see_tile(see, "b", asked, ROWS_B, CHUNKS_B)


def see_tile(see: Observer, tile: str, asked: Sequence[Asked], rows: range, chunks: range) -> None:
    """The warp's chunks of a tile are asked for, each once, and no others."""
    got = Counter((x.row, x.chunk) for x in asked if x.tile == tile)
    want = [(row, chunk) for row in rows for chunk in chunks]
    problem = ""
    if missing := [place for place in want if place not in got]:
        problem = f"lacks chunk {missing[0][1]} of row {missing[0][0]}"
    elif others := sorted(set(got).difference(want)):
        problem = f"has chunk {others[0][1]} of row {others[0][0]}, which is not the warp's"
    elif twice := [place for place, count in got.items() if count > 1]:
        problem = f"has chunk {twice[0][1]} of row {twice[0][0]} {got[twice[0]]} times"
    mine = f"rows {rows[0]} to {rows[-1]}, chunks {chunks[0]} to {chunks[-1]}"
    see.note(
        f"what the warp asks for of the tile of {tile}",
        sorted(got.items()),
        problem,
        f"Its part is {mine}. {GIVE}",
    )


def draw(path: Path) -> Any:
    """Which lane points at which row of the two tiles."""
    from yaie.course.viz.film import compose
    from yaie.course.viz.matmul import draw_asked

    asked = asked_rows(path, WARP)[STEP]
    parts = {"a": (range(128, 160), 4), "b": (range(32), 16)}
    panels = [
        partial(draw_asked, [x for x in asked if x.tile == tile], rows, chunks)
        for tile, (rows, chunks) in parts.items()
    ]
    words = ("rows 128 to 159 of the tile of a", "the tile of b")
    return compose(panels, [(str(i + 1), text) for i, text in enumerate(words)])
