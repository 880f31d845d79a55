"""18.2: the loop over tiles of keys, whose first draft has three faults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, cheap
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import (
    Problem,
    cases_of,
    draw_rung,
    operator_by,
    see_attention,
    see_loads,
)
from yaie.emulator.checks import Report

fit = operator_by("shared_tile")
NAME = "flash_shared_tile"
KEYS, HEIGHT = 32, 32  # of a tile, in float32 with head_dim up to 64

# Each shows one fault alone: warps without a row, several rows, several tiles.
ONE_ROW = Problem(((1, 20),), dim=32)
FOUR_ROWS = Problem(((4, 20),), dim=32)
ALL_ROWS = Problem(((32, 20),), dim=32)  # no warp is without a row
RISING = Problem(((3, 70),), dim=32, rising=True)
TILES = Problem(((1, 70),), dim=32)
ALL = Problem(((9, 70),), heads=2, kv_heads=1, dim=32)
SMALL = (ONE_ROW, ALL_ROWS, FOUR_ROWS, RISING, TILES, ALL)
OTHERS = (
    Problem(((45, 45),), dim=16, causal=True),
    Problem(((36, 3),), dim=16, causal=True),
    Problem(((2, 0),), dim=16),
    Problem(((2, 40),), dim=16, size=400.0),
    Problem(((2, 40),), dim=16, below=True),
    Problem(((5, 33), (0, 3), (34, 40)), dim=16, causal=True),
    Problem(((2, 35), (6, 6)), heads=2, kv_heads=1, dim=40, causal=True, block_size=16),
    Problem(((18, 33),), dim=100),
    Problem(((5, 33),), dim=64, suffix="f16"),
    Problem(((5, 33),), dim=64, suffix="bf16"),
)
COUNTED = Problem(((32, 64),), dim=64)

BECAUSE = (
    "Each row of the warp has its own maximum, total and sums. With weights exp(score - maximum), "
    "out is the sum of weight × value over all tiles, divided by their total. Both sums are "
    "multiplied by exp(old maximum - new maximum) whenever the maximum grows."
)
STAYS = (
    "A warp without a query still loads rows of k and v for the others and reaches every barrier. "
    "Only the last step, which writes, asks whether there is a row."
)
EXPLAIN = {
    "race": (
        "Each iteration needs two barriers: one before the tiles are read, and one before the next "
        "iteration overwrites them. A row of out is written by its own warp, and lse by one lane."
    ),
    "uninitialized": f"All threads load rows, and a barrier comes before the first read. {STAYS}",
    "divergent_barrier": STAYS,
    "deadlock": STAYS,
    "out_of_bounds": (
        "v_tile has KEYS rows of DIMS elements, and q_tile a row for each query of the tile. A row "
        "without a query has no place in out and lse: do not write it."
    ),
    "shuffle": "All 32 lanes of a warp have to reach one and the same shuffle, with ALL_LANES.",
}
COSTS = {
    "global load": "Let neighboring lanes read neighboring elements of a row, as load_tile does.",
    "global store": "Let neighboring lanes write neighboring elements, as store_row does.",
    "shared load": (
        "Let lane l take the elements l, l + 32, … of v_tile, of the same row in all lanes."
    ),
    "shared store": "Let neighboring lanes write neighboring elements, as load_tile does.",
}


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    report = see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
    if not case.costs:
        return
    once = "Load a tile once, for all rows of the tile of queries."
    see_loads(see, report, "kv", COUNTED.lengths[0][1] * COUNTED.dim // 32, once)
    tiles = [x for x in report.accesses if x.name != "q_tile" or x.kind == "store"]
    cheap(see, Report([], lambda: tiles, report.source), COSTS)


def draw(path: Path) -> Any:
    """What each line costs."""
    return draw_rung(path, NAME, COUNTED)
