"""18.3: which keys a tile needs, which of them each row sees, and which KV head they are of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, requests
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import (
    Problem,
    cases_of,
    operator_by,
    see_attention,
    seen_by,
)
from yaie.course.exercises.nb18.ex2_tile_loop import HEIGHT, KEYS, NAME, STAYS
from yaie.course.lessons.data_nb18 import tiles_brought

fit = operator_by("shared_tile")
SMALL = (
    Problem(((5, 9),), heads=6, kv_heads=3, dim=16),
    Problem(((6, 6),), dim=16, causal=True),
    Problem(((6, 40),), dim=16, causal=True),
    Problem(((40, 70),), dim=16, causal=True),
    Problem(((33, 33), (3, 35), (40, 40)), dim=16, causal=True),
)
OTHERS = (
    Problem(((40, 20),), dim=16, causal=True),
    Problem(((40, 70),), dim=16),
    Problem(((0, 5), (3, 0), (34, 80)), heads=4, kv_heads=2, dim=16, causal=True),
    Problem(((35, 60), (1, 17)), heads=2, kv_heads=1, dim=16, causal=True, block_size=16),
    Problem(((20, 40),), heads=4, kv_heads=2, dim=100, causal=True),
    Problem(((36, 40),), heads=4, kv_heads=2, dim=64, causal=True, suffix="bf16"),
)
COUNTED = Problem(((96, 96),), dim=32, causal=True)

BECAUSE = (
    "The tile's rows are the queries first_row, first_row + 1, … of the sequence, and this warp's "
    "are first_row + first + r. sequence.seen_by(query, flash.causal) says how many keys a query "
    "sees. A tile visits as many as its last query sees, and row r sees seen[r] of them."
)
ROWS = (
    "A tile has HEIGHT rows, but the last tile of a sequence may have fewer queries: num_queries - "
    "first_row, if that is less. The rows past them belong to another sequence, or do not exist."
)
EXPLAIN = {
    "race": f"Two tiles have written the same row. {ROWS}",
    "out_of_bounds": (
        f"{ROWS} Query head h reads KV head h / group, where group is heads / kv_heads."
    ),
    "divergent_barrier": STAYS,
    "deadlock": STAYS,
    "uninitialized": STAYS,
}


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    report = see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
    if not case.costs:
        return
    ends = range(HEIGHT, COUNTED.lengths[0][0] + 1, HEIGHT)
    needed = sum(seen_by(COUNTED, 0, end - 1) for end in ends)
    last = "No query of a tile sees keys past those of its last query, so num_keys ends there."
    loaded = requests(report, name="k", kind="load")
    see.at_most("the number of rows of k that were loaded", loaded, needed, last)


def draw(path: Path) -> Any:
    """How many tiles of keys each tile of queries loaded."""
    from yaie.course.viz.tiles import draw_key_tiles

    rows, queries, keys = tiles_brought(path)
    return draw_key_tiles(rows, queries, keys, tile_q=HEIGHT, tile_k=KEYS)
