"""17.2: the loop over tiles of keys, whose first draft has three faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import cheap
from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb17 import NOTEBOOK
from yaie.course.exercises.nb17.attention import (
    Problem,
    cases_of,
    draw_rung,
    requests,
    see_attention,
)

FIRST_DRAFT = """\
    if (first >= queries) return;
    float maximum[ROWS], total[ROWS] = {}, sums[PARTS] = {}, scores[ROWS];
    for (int r = 0; r < ROWS; ++r) maximum[r] = -INFINITY;
    for (int start = 0; start < num_keys; start += KEYS) {
        load_tile(k_tile, k, flash.k_stride, start, num_keys, sequence, flash);
        load_tile(v_tile, v, flash.v_stride, start, num_keys, sequence, flash);
        __syncthreads();
        multiply(scores, &q_tile[first], k_tile);
        for (int r = 0; r < ROWS; ++r) {
            if (start + lane >= seen[r]) scores[r] = -INFINITY;
            float larger = fmaxf(maximum[r], warp_max(scores[r]));
            float finite = larger == -INFINITY ? 0.0f : larger;  // -inf - -inf is NaN
            scores[r] = expf(scores[r] - finite);                // from here on a weight
            float of_tile = warp_sum(scores[r]);
            total[r] = total[r] * expf(maximum[r] - finite) + of_tile;
            maximum[r] = larger;
            if (of_tile > 0.0f) scores[r] /= of_tile;
        }
        for (int key = 0; key < KEYS; ++key) {
            float value[PARTS];
            for (int i = 0; i < PARTS; ++i) value[i] = to_float(v_tile[key][lane + i * WARP]);
            for (int r = 0; r < ROWS; ++r) {
                float weight = __shfl_sync(ALL_LANES, scores[r], key);
                for (int i = 0; i < PARTS; ++i) sums[i] += weight * value[i];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS && first + r < queries; ++r) {
        size_t row = (size_t)(first_token + first + r) * flash.heads + head;
        store_row(flash, row, sums, 1.0f, maximum[r] + logf(total[r]));
    }
"""

EXERCISE = Exercise(
    id="17.2",
    notebook=NOTEBOOK,
    slug="tile_loop",
    title="A first draft of the tile loop: three faults",
    target="csrc/flash/shared_tile.cu#flash_shared_tile",
    task=(
        "A thread block of 8 warps has a tile of queries. Each warp has ROWS of its rows, and each "
        "lane the score of one key for each of them. Between the marks stands a first draft of the "
        "loop over the tiles of keys. It compiles, its log-sum-exp is often right, and its output "
        "hardly ever. It has three faults. Find them, and change as little as you can."
    ),
    difficulty=3,
    minutes=30,
    hints=(
        "Ask three questions. Does every thread reach every barrier, whatever the number of "
        "queries? What has to be divided by what, and when? Which row do `sums` belong to?",
        "A warp without queries has no row to write, but it still loads rows of k and v and "
        "reaches every barrier. The weights of all tiles must be relative to one maximum, and "
        "their sums divided by one total, once. Four rows of scores give four different averages "
        "of the same values.",
        "    float maximum[ROWS], total[ROWS] = {}, sums[ROWS][PARTS] = {}, scores[ROWS];\n"
        "    ...\n"
        "            float correction = expf(maximum[r] - finite);\n"
        "            total[r] = total[r] * ... + ...;\n"
        "            for (int i = 0; i < PARTS; ++i) sums[r][i] *= ...;\n"
        "    ...\n"
        "        store_row(flash, row, sums[r], total[r] > 0.0f ? ... : 0.0f, ...);",
    ),
    proves=(
        "It is right for 16 batches, in three schedules and three dtypes. No thread reads or "
        "overwrites a tile too early, and each key is loaded once per tile of queries."
    ),
    draft=FIRST_DRAFT,
)
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
ALL_LANES = "All 32 lanes of a warp have to reach one and the same shuffle, with ALL_LANES."
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
    "inactive_lane": ALL_LANES,
    "divergent_collective": ALL_LANES,
    "wrong_mask": ALL_LANES,
}
COSTS = {
    "global load": "Let neighboring lanes read neighboring elements of a row, as load_tile does.",
    "global store": "Let neighboring lanes write neighboring elements, as store_row does.",
    "shared load": (
        "Let lane l take the elements l, l + 32, … of v_tile, of the same row in all lanes."
    ),
    "shared store": "Let neighboring lanes write neighboring elements, as load_tile does.",
}


def cases() -> Iterator[Case]:
    yield from cases_of(SMALL, OTHERS, COUNTED)


def observe(path: Path, case: Case, see: Observer) -> None:
    from yaie.emulator.checks import Report

    report = see_attention(see, path, NAME, case.problem, case.order, EXPLAIN, BECAUSE)
    if case.problem is not COUNTED:
        return
    needed = COUNTED.lengths[0][1] * COUNTED.dim // 32
    for name in ("k", "v"):
        once = "Load a tile once, for all rows of the tile of queries."
        see.at_most(f"the warps' number of loads of {name}", requests(report, name), needed, once)
    tiles = [x for x in report.accesses if x.name != "q_tile" or x.kind == "store"]
    cheap(see, Report([], tiles, report.source), COSTS)


def draw(path: Path) -> Any:
    """What each line costs."""
    return draw_rung(path, NAME, COUNTED)
