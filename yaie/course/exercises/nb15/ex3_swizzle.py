"""15.3: the places one by one, then the whole kernel with the learner's swizzle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import cheap
from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb15 import NOTEBOOK
from yaie.course.exercises.nb15.products import product_of, see_product

EXERCISE = Exercise(
    id="15.3",
    notebook=NOTEBOOK,
    slug="swizzle",
    title="An order of pieces in which no two lanes meet",
    target="csrc/matmul/mma.cu#swizzle",
    task=(
        "A tile in shared memory has rows of PIECES pieces of 16 bytes (PIECES is 4, 8, 16 or "
        "32). Set `place` to where piece `piece` of row `row` lies, counted in pieces from the "
        "beginning of the tile. Each row keeps to its own places, row * PIECES … row * PIECES "
        "+ PIECES - 1, but changes their order, so that one and the same piece of 8 rows that "
        "follow one another (from row 0, 8, 16, …) lies in 8 different groups of four banks."
    ),
    difficulty=2,
    minutes=20,
    hints=(
        "Places p and q are in the same banks if p % 8 == q % 8, since 8 pieces of 16 bytes "
        "fill the 32 banks. Without a change of order, piece 0 of row r is at r * PIECES: with "
        "8 pieces always in banks 0 to 3.",
        "piece ^ something below PIECES (the bitwise exclusive or) is a change of order: "
        "different pieces get different places, and two rows with a different something put a "
        "piece in different places. With 8 or more pieces per row, 8 rows need 8 different "
        "numbers, 0 to 7. With 4 pieces two rows share the 128 bytes of all banks: only every "
        "second row begins in the same bank, and 4 numbers, 0 to 3, are enough.",
        "    place = row * PIECES + (piece ^ ...);\n"
        "with row % 8 for 8 pieces or more, and for 4 pieces a number that is the same for "
        "rows 0 and 1, another for rows 2 and 3, and so on, always below 4. `constexpr int` "
        "and `PIECES < 8 ? ... : ...` write both in one line.",
    ),
    proves=(
        "Every piece has a place of its own in its row, and the tensor-core kernel that uses "
        "them moves every piece without a bank conflict, and multiplies right."
    ),
)
NAME = "matmul_mma"
SIZES = ((128, 256, 32), (40, 264, 72))
ROWS = 64
OWN = "A row keeps to its own PIECES places, from row * PIECES on, each of which takes one piece."
EXPLAIN = {"race": OWN, "out_of_bounds": OWN, "uninitialized": OWN}
MEET = "Lanes that access memory together should not meet in a bank: 8 pieces fill all banks once."
KINDS = ("global load", "global store", "shared load", "shared store")


def cases() -> Iterator[Case]:
    for pieces in (4, 8, 32):
        yield Case(f"rows of {pieces} pieces", pieces=pieces)
    for size in SIZES:
        case = product_of(*size, "f16", costs=size == SIZES[0])
        case.pieces = 0
        yield case


def observe(path: Path, case: Case, see: Observer) -> None:
    from yaie.course.lessons.data_nb15 import places

    if case.pieces:
        table = places(path, case.pieces, ROWS).tolist()
        outside = outside_of_its_row(table, case.pieces)
        because = OWN if outside else orders(case.pieces)
        problem = outside or meet_in_a_column(table) or meet_in_a_row(table)
        if problem:
            problem = problem.replace("swizzle(", f"swizzle<{case.pieces}>(")
        see.note("", table, problem, because)
        return
    report = see_product(see, path, NAME, case, EXPLAIN, OWN)
    if case.costs:
        cheap(see, report, dict.fromkeys(KINDS, MEET))


def outside_of_its_row(table: list[list[int]], pieces: int) -> str:
    """Each row's pieces lie in that row's places, each in one of its own."""
    for row, found in enumerate(table):
        first, last = row * pieces, row * pieces + pieces - 1
        for piece, place in enumerate(found):
            call = f"swizzle({row}, {piece})"
            if not first <= place <= last:
                return f"{call} is {place}, and row {row} has the places {first} to {last}"
            if found.index(place) != piece:
                return f"{call} and swizzle({row}, {found.index(place)}) are both {place}"
    return ""


def meet_in_a_column(table: list[list[int]]) -> str:
    """ldmatrix: the same piece of 8 rows that follow one another lies in different banks."""
    for first in range(0, len(table), 8):
        for piece in range(len(table[0])):
            groups = [table[row][piece] % 8 for row in range(first, first + 8)]
            for row, group in enumerate(groups):
                one, other = first + groups.index(group), first + row
                if one != other:
                    lie = f"{table[one][piece]} and {table[other][piece]}"
                    banks = f"{group * 4} to {group * 4 + 3}"
                    return (
                        f"rows {one} and {other} meet: their piece {piece} lies at {lie}, both in "
                        f"banks {banks}"
                    )
    return ""


def meet_in_a_row(table: list[list[int]]) -> str:
    """A warp that writes rows: 8 pieces that follow one another lie in different banks."""
    width = min(len(table[0]), 8)
    for row, found in enumerate(table):
        for first in range(0, len(found), width):
            part = found[first : first + width]
            if len({place % 8 for place in part}) < width:
                listed = ", ".join(map(str, part))
                return (
                    f"pieces {first} to {first + width - 1} of row {row} meet: they lie at {listed}"
                )
    return ""


def orders(pieces: int) -> str:
    """Which rows have to be told apart."""
    if pieces == 4:
        return (
            "A row of 4 pieces has 64 bytes, half of the banks: every second row begins in the "
            "same bank, and 4 of these need 4 orders."
        )
    return (
        f"A row of {pieces} pieces has {pieces * 16} bytes and begins in bank 0, as all others do: "
        "8 rows that follow one another need 8 different orders."
    )


def draw(path: Path) -> Any:
    """Where the pieces of the first rows lie, by the learner's function."""
    from functools import partial

    from yaie.course.lessons.data_nb15 import places
    from yaie.course.viz.film import compose
    from yaie.course.viz.matmul import draw_places

    panels = [partial(draw_places, places(path, pieces, 16)) for pieces in (4, 8)]
    return compose(panels, [("1", "rows of 4 pieces, as of a"), ("2", "rows of 8 pieces")])
