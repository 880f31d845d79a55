"""The check of 15.3: the places one by one, then the whole kernel with the learner's swizzle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb14.common import report_of, require_cheap
from yaie.course.checks.nb15.common import factors, run
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

NAME = "matmul_mma"
SIZES = ((128, 256, 32), (40, 264, 72))
ROWS = 64

OWN = (
    "A row keeps to its own PIECES places, from row * PIECES on, each of which takes one piece: "
    "only their order changes."
)
CONFLICT = (
    "The pieces lie where lanes that go to memory together meet in a bank. In 128 bytes lies every "
    "bank once: 8 pieces."
)
EXPLAIN: Explain = {"race": OWN, "out_of_bounds": OWN, "uninitialized": OWN}


def check_swizzle(path: Path) -> None:
    from yaie.course.lessons.data_nb15 import places

    for pieces in (4, 8, 32):
        table = places(path, pieces, ROWS).tolist()
        with given(f"PIECES = {pieces}"):
            require_places(table, pieces)
            require_columns(table, pieces)
            require_neighbors(table, pieces)
    because = f"The product with your places is wrong. {OWN}"
    for size in SIZES:
        run(path, NAME, factors(*size, "f16"), "forward", EXPLAIN, [], because, "f16")
    with given("a is 128 × 32, b is 32 × 256, float16"):
        report = report_of(path, f"{NAME}_f16", *factors(*SIZES[0], "f16"), *SIZES[0])
        require_cheap(report, dict.fromkeys(KINDS, CONFLICT))


KINDS = ("global load", "global store", "shared load", "shared store")


def require_places(table: list[list[int]], pieces: int) -> None:
    """Each row's pieces lie in that row's places, each in one of its own."""
    if all(place == 0 for row in table for place in row):
        fail("All places are 0: `place` is what the function returns, so it has to be set.")
    for row, found in enumerate(table):
        first = row * pieces
        for piece, place in enumerate(found):
            call = f"swizzle<{pieces}>({row}, {piece})"
            if not first <= place < first + pieces:
                fail(
                    f"{call} is {place}, outside of row {row}, which has the places {first} to "
                    f"{first + pieces - 1}. {OWN} What a row number is combined with must stay "
                    "below PIECES."
                )
            earlier = found.index(place)
            if earlier != piece:
                fail(f"{call} and swizzle<{pieces}>({row}, {earlier}) are both {place}. {OWN}")


def require_columns(table: list[list[int]], pieces: int) -> None:
    """ldmatrix: the same piece of 8 rows that follow one another lies in different banks."""
    for first in range(0, ROWS, 8):
        for piece in range(pieces):
            groups = [table[row][piece] % 8 for row in range(first, first + 8)]
            for row, group in enumerate(groups):
                earlier = groups.index(group)
                if earlier != row:
                    fail(
                        f"Rows {first + earlier} and {first + row} meet: their piece {piece} lies "
                        f"at {table[first + earlier][piece]} and {table[first + row][piece]}, both "
                        f"in banks {group * 4} to {group * 4 + 3}. {shape(pieces)}"
                    )


def require_neighbors(table: list[list[int]], pieces: int) -> None:
    """A warp that writes rows: 8 pieces that follow one another lie in different banks."""
    width = min(pieces, 8)
    for row, found in enumerate(table):
        for first in range(0, pieces, width):
            groups = [place % 8 for place in found[first : first + width]]
            if len(set(groups)) < width:
                fail(
                    f"Pieces {first} to {first + width - 1} of row {row} lie at "
                    f"{', '.join(map(str, found[first : first + width]))}, and some of them meet "
                    "in a bank when a warp writes the row. Pieces of the same 128 bytes stay in "
                    "the same 128 bytes."
                )


def shape(pieces: int) -> str:
    """Which rows have to be told apart."""
    if pieces == 4:
        return (
            "A row of 4 pieces has 64 bytes, half of the banks: a row and the next lie side by "
            "side, but every second row begins in the same bank, and 4 of these need 4 orders."
        )
    return (
        f"A row of {pieces} pieces has {pieces * 16} bytes and begins in bank 0, as all others: "
        "8 rows that follow one another need 8 different orders."
    )


def draw_swizzle(path: Path) -> Any:
    """Where the pieces of the first rows lie, by the learner's function."""
    from functools import partial

    from yaie.course.lessons.data_nb15 import places
    from yaie.course.viz.film import compose
    from yaie.course.viz.matmul import draw_places

    panels = [partial(draw_places, places(path, pieces, 16)) for pieces in (4, 8)]
    return compose(panels, [("1", "rows of 4 pieces, as of a"), ("2", "rows of 8 pieces")])
