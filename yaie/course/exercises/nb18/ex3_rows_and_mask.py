"""18.3: which query and head each row of a tile is, and the mask of its keys in registers."""

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, requests
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import Problem, cases_of, see_attention

NAME = "flash_mma"
SMALL = (
    Problem(((5, 9),), dim=16, suffix="f16"),
    Problem(((6, 6),), dim=16, causal=True, suffix="f16"),
    Problem(((5, 9),), heads=6, kv_heads=2, dim=16, suffix="f16"),
    Problem(((7, 90),), heads=3, kv_heads=1, dim=16, causal=True, suffix="f16"),
)
OTHERS = (
    Problem(((40, 150),), dim=16, causal=True, suffix="f16"),
    Problem(((33, 33), (3, 35), (40, 40)), dim=16, causal=True, suffix="f16"),
    Problem(((150, 150),), dim=16, causal=True, suffix="f16"),
    Problem(((40, 20),), dim=16, causal=True, suffix="f16"),
    Problem(((50, 50),), heads=3, kv_heads=1, dim=16, causal=True, suffix="f16"),  # 2 tiles
    Problem(((50, 70), (0, 5), (3, 0)), heads=4, kv_heads=1, dim=16, causal=True, suffix="f16"),
    Problem(((2, 0),), dim=16, suffix="f16"),
    Problem(((35, 60), (1, 17)), heads=4, kv_heads=2, dim=16, causal=True, block_size=16,
            suffix="f16"),
    Problem(((20, 90),), heads=4, kv_heads=2, dim=104, causal=True, suffix="f16"),
    Problem(((36, 140),), heads=4, kv_heads=2, dim=64, causal=True, suffix="bf16"),
)  # fmt: skip
COUNTED = Problem(((256, 256),), dim=64, causal=True, suffix="f16")
TILE_Q, TILE_K, CHUNK = 128, 128, 8  # with head_dim 64; numbers in a copy of 16 bytes

BECAUSE = (
    "Row r of a sequence is query r / group in head kv_head × group + r % group. It sees the keys "
    "0 to sequence.seen_by(query, flash.causal) - 1, and no more of them count."
)
ROWS = (
    "The tile has num_rows rows, from row sequence.first_row of the sequence on. seen, tokens and "
    "heads are indexed by the row in the tile; seen_by takes a query of the sequence."
)
EXPLAIN = {
    "race": f"Two rows were given one place in out. {ROWS}",
    "out_of_bounds": f"{ROWS} num_keys is what the last row that exists sees.",
    "uninitialized": f"Each thread writes tokens, heads and seen, and one writes num_keys. {ROWS}",
    "misaligned": ROWS,
}


def cases() -> Iterator[KernelCase]:
    yield from cases_of(SMALL, OTHERS, COUNTED)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    report = see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
    if not case.costs:
        return
    tiles = range(TILE_Q, COUNTED.lengths[0][0] + 1, TILE_Q)  # where a tile of queries ends
    needed = sum(tiles) * COUNTED.dim // CHUNK // 32
    last = "No row of a tile sees keys past those of its last row, so num_keys ends there."
    copies = requests(report, name="k", kind="load")
    see.at_most("the warps' number of copies of k", copies, needed, last)
