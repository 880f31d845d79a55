"""16.3: the places one by one, then the whole kernel with the learner's swizzle."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, cheap
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import product_of, see_product
from yaie.course.lessons.data_nb16 import places

NAME = "matmul_mma"
SIZES = ((128, 256, 32), (40, 264, 72))
ROWS = 64
OWN = "A row keeps to its own CHUNKS places, from row * CHUNKS on, each of which takes one chunk."
EXPLAIN = {"race": OWN, "out_of_bounds": OWN, "uninitialized": OWN}
MEET = "Lanes of one request should not share a bank: 8 chunks fill all 32 banks once."
KINDS = ("global load", "global store", "shared load", "shared store")


def cases() -> Iterator[KernelCase]:
    for chunks in (4, 8, 32):
        yield KernelCase(f"rows of {chunks} chunks", chunks=chunks)
    for size in SIZES:
        yield product_of(*size, "f16", chunks=0, costs=size == SIZES[0])


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.chunks:
        table = places(path, case.chunks, ROWS).tolist()
        outside = outside_of_its_row(table, case.chunks)
        because = OWN if outside else orders(case.chunks)
        problem = outside or meet_in_a_column(table) or meet_in_a_row(table)
        if problem:
            problem = problem.replace("swizzle(", f"swizzle<{case.chunks}>(")
        see.note("", table, problem, because)
        return
    report = see_product(see, path, NAME, case, EXPLAIN, OWN)
    if case.costs:
        cheap(see, report, dict.fromkeys(KINDS, MEET))


def outside_of_its_row(table: list[list[int]], chunks: int) -> str:
    """Each row's chunks lie in that row's places, each in one of its own."""
    for row, found in enumerate(table):
        first, last = row * chunks, row * chunks + chunks - 1
        for chunk, place in enumerate(found):
            call = f"swizzle({row}, {chunk})"
            if not first <= place <= last:
                return f"{call} is {place}, and row {row} has the places {first} to {last}"
            if found.index(place) != chunk:
                return f"{call} and swizzle({row}, {found.index(place)}) are both {place}"
    return ""


def meet_in_a_column(table: list[list[int]]) -> str:
    """ldmatrix: the same chunk of 8 consecutive rows lies in different banks."""
    for first in range(0, len(table), 8):
        for chunk in range(len(table[0])):
            groups = [table[row][chunk] % 8 for row in range(first, first + 8)]
            for row, group in enumerate(groups):
                one, other = first + groups.index(group), first + row
                if one != other:
                    lie = f"{table[one][chunk]} and {table[other][chunk]}"
                    banks = f"{group * 4} to {group * 4 + 3}"
                    return (
                        f"rows {one} and {other} conflict: chunk {chunk} lies at {lie}, both in "
                        f"banks {banks}"
                    )
    return ""


def meet_in_a_row(table: list[list[int]]) -> str:
    """A warp that writes rows: 8 consecutive chunks lie in different banks."""
    width = min(len(table[0]), 8)
    for row, found in enumerate(table):
        for first in range(0, len(found), width):
            part = found[first : first + width]
            if len({place % 8 for place in part}) < width:
                listed = ", ".join(map(str, part))
                who = f"chunks {first} to {first + width - 1} of row {row}"
                return f"{who} conflict: they lie at {listed}"
    return ""


def orders(chunks: int) -> str:
    """How many orders the rows need, and why."""
    if chunks == 4:
        return (
            "A row of 4 chunks has 64 bytes, half of the banks: every second row begins in the "
            "same bank, and 4 of these need 4 orders."
        )
    return (
        f"A row of {chunks} chunks has {chunks * 16} bytes and begins in bank 0, as all others do: "
        "8 consecutive rows need 8 different orders."
    )


def draw(path: Path) -> Any:
    """Where the chunks of the first rows lie, by the learner's function."""
    from yaie.course.viz.film import compose
    from yaie.course.viz.matmul import draw_places

    panels = [partial(draw_places, places(path, chunks, 16)) for chunks in (4, 8)]
    return compose(panels, [("1", "rows of 4 chunks, as of a"), ("2", "rows of 8 chunks")])
