"""The check of 15.2: 64 sums a thread, with 4 loads of 16 bytes a step, between two barriers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import element_of, on_every_schedule, race_in_words, report_of
from yaie.course.checks.nb15.common import Mistakes, factors, product, run, units
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "matmul_register_tile"
TILE, HALF, QUAD, DEPTH, WARPS = 128, 64, 4, 8, 8
CONSTANTS = {"TILE": TILE, "PADDED": TILE + QUAD, "DEPTH": DEPTH, "QUAD": QUAD, "HALF": HALF}
SIZES = ((128, 128, 8), (128, 128, 24), (3, 5, 9))
CUT_OFF = ((130, 70, 20), (129, 140, 33))
WAVEFRONTS = 12  # of the four loads of a step: 2 + 2 of a, 4 + 4 of b

BECAUSE = (
    "In each step, sums[down][across][i][j] takes the product of element i of the thread's piece "
    "`down` of a column of a and element j of its piece `across` of a row of b."
)


def check_register_tile(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for m, n, k in SIZES:
            given_factors = factors(m, n, k)
            run(path, NAME, given_factors, order, explain, mistakes(*given_factors[:2]), BECAUSE)

    on_every_schedule(values)
    for size in CUT_OFF:
        run(path, NAME, factors(*size), "forward", explain, [], BECAUSE)
    for suffix in ("f16", "bf16"):
        run(path, NAME, factors(130, 72, 40, suffix), "forward", explain, [], BECAUSE, suffix)
    costs(path, explain)


def mistakes(a: Any, b: Any) -> Mistakes:
    """Wrong products that are likely, on these factors."""
    import torch

    (m, k), n = a.shape, b.shape[1]
    if (m, n) != (TILE, TILE):
        return []
    right = product(a, b)
    same, other = torch.zeros_like(right), torch.zeros_like(right)
    for down in (0, HALF):
        for across in (0, HALF):
            square = (slice(down, down + HALF), slice(across, across + HALF))
            target = same if down == across else other
            target[square] = right[square]
    first = torch.zeros_like(right)
    first[:HALF, :HALF] = right[:HALF, :HALF]
    inside = right.view(32, QUAD, 32, QUAD).transpose(1, 3).reshape(TILE, TILE)
    squares = right.view(2, HALF, 2, HALF).transpose(0, 2).reshape(TILE, TILE)
    kept = torch.arange(k) % DEPTH != DEPTH - 1
    beside = torch.cat((torch.arange(HALF), torch.arange(HALF) + QUAD))
    found = [
        (first, "Three of the four squares are missing: all of a's elements meet all of b's, 64 "
         "products a step."),
        (same, "Only the squares on the diagonal were computed: `down` and `across` are two loops, "
         "not one."),
        (product(a[:, kept], b[kept]), "One product in eight is missing: a tile has DEPTH = 8 "
         "steps, 0 to 7."),
        (inside, "Every square of 4 × 4 is turned over: i counts rows, which come from a, and j "
         "columns, which come from b."),
        (squares, "The squares are exchanged: `down` counts rows, which come from a, and `across` "
         "columns, which come from b."),
        (product(a, b).t(), "That is c turned over: rows come from a_tile, columns from b_tile."),
        (torch.zeros_like(right), "Nothing was added to sums."),
        (right[beside][:, beside], "The second four elements were taken from beside the first: "
         "they lie half a tile further on, at HALF + y and HALF + x."),
        (product(a[:, -1:], b[-1:]), "That is what the last step gives alone: sums are added to, "
         "never set."),
    ]  # fmt: skip
    if k > DEPTH:
        last = (k - 1) // DEPTH * DEPTH
        found.append(
            (product(a[:, last:], b[last:]), "That is what the last tiles give: sums are added to, "
             "never set.")
        )  # fmt: skip
    return found


def costs(path: Path, explain: Explain) -> None:
    size = (TILE, TILE, 16)
    report = run(path, NAME, factors(*size), "forward", explain, [], BECAUSE)
    with given("a is 128 × 16, b is 16 × 128, f32"):
        requests, wavefronts = units(report, "shared", "load")
        steps = 16 * WARPS
        if requests > 4 * steps:
            fail(
                f"A warp reads shared memory {requests / steps:.4g} times in a step, and 4 times "
                "would do: load16 brings four neighbors at once, and what was brought stays in "
                "registers for all 64 products."
            )
        if wavefronts > WAVEFRONTS * steps:
            fail(
                f"The loads of a step cost a warp {wavefronts / steps:.4g} wavefronts, and "
                f"{WAVEFRONTS} would do: in both tiles read four neighbors of a row, at y and "
                "HALF + y, and at x and HALF + x."
            )


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Two threads write the same element of c."
        words = race_in_words(found, element_of(found, path, CONSTANTS, 4))
        return (
            f"{words} Two barriers in every turn: one before the tiles are read, one before the "
            "next turn writes them."
        )

    return {
        "race": race,
        "out_of_bounds": (
            "A tile has DEPTH = 8 rows, one for each step; in a row the thread's pieces begin at y "
            "and HALF + y in a_tile, at x and HALF + x in b_tile."
        ),
        "misaligned": (
            "load16 wants an address that is a multiple of 16, so an index that is a multiple of "
            "4, as x, y and HALF are."
        ),
        "uninitialized": "Before the tiles are read, all threads have to have written them.",
    }


def draw_register_tile(path: Path) -> Any:
    """Which lines cost how much, in your kernel."""
    from yaie.course.viz.memory import draw_costs

    size = (TILE, TILE, 16)
    return draw_costs(report_of(path, f"{NAME}_f32", *factors(*size), *size))
