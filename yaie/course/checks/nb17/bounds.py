"""The check of 17.3: which keys a tile needs, which each row sees, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb17.common import (
    Problem,
    arguments,
    attend,
    requests,
    run,
    seen_by,
)
from yaie.course.checks.nb17.tile import HEIGHT, KEYS, LEAVES, NAME
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

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
    "sees; a tile walks along as many as its last query sees, and the row r sees seen[r] of them."
)
HEADS = (
    "Query head h reads KV head h / group, where group is heads / kv_heads: neighbors share one."
)
ROWS = (
    "A tile has HEIGHT rows, but the last one of a sequence may have fewer queries: "
    "num_queries - first_row of them, if that is less. What lies behind belongs to another "
    "sequence, or to nobody."
)


def check_bounds(path: Path) -> None:
    def values(order: str) -> None:
        for problem in SMALL:
            explain = explanations(problem)
            run(path, NAME, problem, explain, mistakes(problem), BECAUSE, order)

    on_every_schedule(values)
    for problem in OTHERS:
        run(path, NAME, problem, explanations(problem), mistakes(problem), BECAUSE)
    costs(path)


def mistakes(problem: Problem) -> Iterator[tuple[Any, str]]:
    """Outputs that are likely, and what they come from."""
    height = HEIGHT if problem.dim <= 64 or problem.suffix != "f32" else HEIGHT // 2

    def keys(sequence: int) -> int:
        return problem.lengths[sequence][1]

    def clipped(sequence: int, count: int) -> int:
        return max(0, min(count, keys(sequence)))

    def by_place_in_tile(sequence: int, query: int) -> int:
        return seen_by(problem, sequence, query % height)

    def by_place_in_warp(sequence: int, query: int) -> int:
        rows = 4 if height == HEIGHT else 2
        return seen_by(problem, sequence, query // height * height + query % height % rows)

    def exact(sequence: int, query: int) -> int:
        return seen_by(problem, sequence, query)

    of_heads = (
        (lambda head: head % problem.kv_heads, "That reads KV head h % kv_heads. " + HEADS),
        (lambda head: 0, "That reads KV head 0 for every head. " + HEADS),
        (lambda head: min(head, problem.kv_heads - 1), HEADS),
    )
    of_keys = (
        (lambda s, q: keys(s), "Some queries have seen keys that come after them: seen[r] is what "
         "its own query sees."),
        (lambda s, q: clipped(s, q + 1), "The mask is aligned top-left: query 0 sees one key. But "
         "the queries are the last tokens of the sequence, and there are num_keys - num_queries "
         "before them. seen_by knows."),
        (lambda s, q: clipped(s, exact(s, q) + 1), "Each query sees one key too many: the one "
         "after it."),
        (lambda s, q: clipped(s, exact(s, q) - 1), "Each query sees one key too few: it sees its "
         "own, too."),
        (by_place_in_tile, "The queries were counted from the beginning of the tile: first_row is "
         "missing."),
        (by_place_in_warp, "The rows were counted from the beginning of the tile: this warp's "
         "begin at `first`."),
    )  # fmt: skip
    if problem.heads > 1:
        yield from ((attend(problem, kv_head=f)[0], text) for f, text in of_heads)
    if problem.causal:
        yield from ((attend(problem, seen=f)[0], text) for f, text in of_keys)


def costs(path: Path) -> None:
    """No tile of keys is brought that no query of the tile sees."""
    given_arguments, _ = arguments(COUNTED)
    with given(str(COUNTED)):
        report = report_of(path, f"{NAME}_f32", *given_arguments)
        queries, keys = COUNTED.lengths[0]
        ends = range(HEIGHT, queries + 1, HEIGHT)
        needed = sum(seen_by(COUNTED, 0, end - 1) for end in ends)
        asked, everything = requests(report, "k"), len(ends) * keys
        if asked > needed:
            fail(
                f"the result is right, but {asked} rows of k were brought, and {needed} would do"
                + (", as without a mask" if asked >= everything else "")
                + ": no query of a tile sees keys after its last query's own, so num_keys ends "
                "there."
            )


def explanations(problem: Problem) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return f"Two tiles have written the same row of {found.name}. {ROWS}"
        return LEAVES

    def bounds(found: Finding) -> str:
        if found.name in ("q", "out", "lse"):
            return ROWS
        if problem.heads > 1 and found.name in ("k", "v"):
            return HEADS
        return BECAUSE

    return {
        "race": race,
        "out_of_bounds": bounds,
        "divergent_barrier": LEAVES,
        "deadlock": LEAVES,
        "uninitialized": LEAVES,
    }


def draw_bounds(path: Path) -> Any:
    """Which tiles of keys each tile of queries brought, from the rows of k that were asked for."""
    from yaie.course.lessons.data_nb17 import tiles_brought
    from yaie.course.viz.tiles import draw_key_tiles

    rows, queries, keys = tiles_brought(path)
    return draw_key_tiles(rows, queries, keys, tile_q=HEIGHT, tile_k=KEYS)
