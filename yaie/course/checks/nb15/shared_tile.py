"""The check of 15.1: right at every edge, no race, every element fetched once a tile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    element_of,
    on_every_schedule,
    race_in_words,
    require_cheap,
)
from yaie.course.checks.nb15.common import Mistakes, factors, product, run, units
from yaie.course.core.cuda import Explain, poisoned
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "matmul_shared_tile"
TILE = 32
CONSTANTS = {"TILE": TILE, "WARP": 32}
WHOLE = (64, 96, 64)
SIZES = ((32, 32, 32), WHOLE, (32, 32, 40), (33, 31, 64), (5, 70, 33), (1, 1, 1), (40, 33, 0))

EDGE = (
    "A tile of a may reach beyond row m or column k, a tile of b beyond row k or column n. What "
    "lies beyond counts as 0, which adds nothing: write a 0 there, and do not read."
)
UNFILLED = (
    "A cell of the tile that nobody wrote in this turn. Each thread writes its cell of both tiles "
    "in every turn: the element, or a 0 if there is none."
)
COSTS = {
    "global load": (
        "Neighboring threads (threadIdx.x) should read neighbors of a row, from a and from b."
    ),
    "global store": "Neighboring threads (threadIdx.x) should write neighbors of a row of c.",
    "shared load": (
        "The lanes of a warp have the same y. Let them read one element of a_tile, which they "
        "share, and 32 neighbors of a row of b_tile."
    ),
    "shared store": (
        "The lanes write down a column of the tile, which lies in one bank. Let lane x write "
        "column x of its row."
    ),
}


def check_shared_tile(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for m, n, k in SIZES:
            given_factors = factors(m, n, k)
            run(path, NAME, given_factors, order, explain, mistakes(*given_factors[:2]), because(k))

    on_every_schedule(values)
    sums_in_float(path, explain)
    for suffix in ("f16", "bf16"):
        run(path, NAME, factors(40, 70, 100, suffix), "forward", explain, [], because(100), suffix)
    costs(path, explain)


def because(k: int) -> str:
    tail = f" Here k = {k} is no multiple of 32: the last tiles are cut off." if k % TILE else ""
    return (
        "c[row][column] is the sum over all k of a[row][k] × b[k][column]; in each turn, a tile of "
        f"a and a tile of b bring 32 of them.{tail}"
    )


def mistakes(a: Any, b: Any) -> Mistakes:
    """Wrong products that are likely, on these factors."""
    import torch

    (m, k), n = a.shape, b.shape[1]
    whole = k // TILE * TILE
    found = []
    if 0 < whole < k:
        found.append((product(a[:, :whole], b[:whole]), (
            f"The sum ends at k = {whole}, after the last whole tile: the {k - whole} products "
            "after it are missing. The loop goes on while start is less than k."
        )))  # fmt: skip
        stale = slice(whole - TILE + k % TILE, whole)
        found.append((product(a, b) + product(a[:, stale], b[stale]), (
            "Beyond k the last tiles still hold what the turn before left there, and it was added "
            "again. Each thread writes its cell of both tiles in every turn: the element, or a 0."
        )))  # fmt: skip
    if k > TILE:
        found.append((product(a[:, -(k - (k - 1) // TILE * TILE):], b[(k - 1) // TILE * TILE:]), (
            "That is what the last tiles give: the sum begins anew in every turn. It is set to 0 "
            "once, before the loop."
        )))  # fmt: skip
        found.append((product(a[:, :TILE], b[:TILE]), "That is what the first tiles give alone."))
    if m == n == k == TILE:
        turned_b, turned_a = product(a, b.t()), product(a.t(), b)
        hint = "Row y of a_tile is multiplied with column x of b_tile: a_tile[y][i] * b_tile[i][x]."
        found += [
            (turned_b, f"That is a times b turned over. {hint}"),
            (turned_a, f"That is a turned over, times b. {hint}"),
            (product(a.t(), b.t()), f"Both tiles are turned over. {hint}"),
            (torch.zeros(m, n), "Nothing was added up."),
        ]
    if m == n:
        found.append((product(a, b).t(), "That is c turned over: y is the row, x the column."))
    return found


def sums_in_float(path: Path, explain: Explain) -> None:
    """4,096 products of 1: a float16 stops at 2,048, where one more is lost in rounding."""
    import torch

    a, b = torch.ones(1, 4096, dtype=torch.float16), torch.ones(4096, 1, dtype=torch.float16)
    stuck = torch.full((1, 1), 2048.0, dtype=torch.float16)
    told = (
        "1 was added 4,096 times, and the sum stopped at 2,048: a float16 has 11 bits, and 2,048 "
        "+ 1 rounds to 2,048. Keep the sum in a float, and round once, at the end."
    )
    c = poisoned(1, 1, dtype=torch.float16)
    run(path, NAME, (a, b, c), "forward", explain, [(stuck, told)], told, "f16", checked=False)


def costs(path: Path, explain: Explain) -> None:
    a, b, c = factors(*WHOLE)
    report = run(path, NAME, (a, b, c), "forward", explain, [], because(WHOLE[2]))
    m, n, k = WHOLE
    with given("a is 64 × 64, b is 64 × 96, f32"):
        needed = (m * k * (n // TILE) + k * n * (m // TILE)) // TILE  # an element a lane
        asked, _ = units(report, "global", "load")
        if asked > needed:
            fail(
                f"Warps asked global memory {asked:,} times, and {needed} would do: each thread "
                "brings one element of a and one of b in a turn, and all 32 × 32 threads use them, "
                "from shared memory."
            )
        require_cheap(report, COSTS)


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Two threads write the same element of c: y is the row, x the column."
        words = race_in_words(found, element_of(found, path, CONSTANTS, 4))
        return (
            f"{words} Two barriers in every turn: one before the tiles are read, one before the "
            "next turn writes them."
        )

    return {
        "race": race,
        "out_of_bounds": lambda found: (
            EDGE if found.memory == "global" else "The tile ends there: it has 32 rows and columns."
        ),
        "uninitialized": UNFILLED,
        "divergent_barrier": (
            "At the edge some threads have no element of c. They bring elements of a and b for the "
            "others and come to every barrier; only the last line asks whether there is a c."
        ),
        "deadlock": "All threads take the same number of turns, with an element of c or without.",
    }


def draw_shared_tile(path: Path) -> Any:
    """What a warp reads from the two tiles."""
    from functools import partial

    from yaie.course.checks.nb14.common import report_of
    from yaie.course.viz.film import compose
    from yaie.course.viz.memory import draw_access

    a, b, c = factors(*WHOLE)
    report = report_of(path, f"{NAME}_f32", a, b, c, *WHOLE)
    chosen = sorted(
        (x for x in report.accesses if (x.memory, x.kind) == ("shared", "load")),
        key=lambda x: x.name,
    )
    return compose([partial(draw_access, access) for access in chosen[:2]])
