"""13.2: what `seen_keys` says of a tile of queries, beside keys counted one by one."""

from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import run
from yaie.course.exercises.nb11.tensors import poisoned
from yaie.course.exercises.nb13.kernels import operator_by, seen_kernel

fit = operator_by("seen_keys", home="flash")
NOTHING = -(1 << 30)


def cases() -> Iterator[Case]:
    yield tile(4, 8, 8, True, 4, 2)  # a prompt without a past
    yield tile(4, 8, 18, True, 4, 2)  # a chunk of a prompt, after 10 tokens
    yield tile(0, 1, 50, True, 16, 16)  # a decode step
    yield tile(0, 1, 50, False, 16, 16)
    yield tile(16, 24, 40, False, 16, 16)  # a last tile of 8 queries
    for num_queries, num_keys in ((1, 1), (20, 20), (33, 100), (17, 128), (20, 7), (5, 0)):
        for causal in (True, False):
            for block_m, block_n in ((16, 16), (32, 8), (16, 64)):
                for first_row in range(0, num_queries, block_m):
                    yield tile(first_row, num_queries, num_keys, causal, block_m, block_n)


def tile(
    first_row: int, num_queries: int, num_keys: int, causal: bool, block_m: int, block_n: int
) -> Case:
    rows = range(first_row, min(first_row + block_m, num_queries))
    name = (
        f"queries {rows.start} to {rows.stop - 1} of {num_queries}, {num_keys} keys, "
        f"{'causal' if causal else 'not causal'}, BLOCK_M = {block_m}, BLOCK_N = {block_n}"
    )
    arguments = (first_row, num_queries, num_keys, causal, block_m, block_n)
    return Case(name, rows=rows, arguments=arguments)


def observe(seen_keys: Any, case: Case, see: Observer) -> None:
    _, num_queries, num_keys, causal, _, block_n = case.arguments
    with see.call("seen_keys"):
        last_key, unmasked, end = run_tile(seen_keys, *case.arguments, see)
    sees = [visible(row, num_queries, num_keys, causal) for row in case.rows]
    last_key = [max(key, -1) for key in last_key[: len(sees)]]  # negative: sees none
    why = f"Query 0 is token num_keys - num_queries = {num_keys - num_queries} of the sequence."
    why = why if causal else "Without a causal mask every query sees all keys."
    see.equal(f"last_key of the {len(sees)} queries", last_key, [n - 1 for n in sees], why)
    whole = min(sees) // block_n * block_n
    why = f"The first query of the tile sees {min(sees)} keys, {whole} of them in whole tiles."
    see.equal("unmasked", unmasked, whole, why)
    why = f"The last query of the tile sees {max(sees)} keys."
    see.equal("end", max(end, 0), max(sees), why)


def run_tile(
    seen_keys: Any,
    first_row: int,
    num_queries: int,
    num_keys: int,
    causal: bool,
    block_m: int,
    block_n: int,
    see: Observer,
) -> tuple[list[int], int, int]:
    """What the learner's function says of one tile."""
    last_key, bounds = (poisoned(n, dtype=torch.int32, value=NOTHING) for n in (block_m, 2))
    arguments = {
        "last_key": last_key, "bounds": bounds, "first_row": first_row,
        "num_queries": num_queries, "num_keys": num_keys,
    }  # fmt: skip
    run(
        see, seen_kernel, (1,), arguments,
        SEEN=seen_keys, CAUSAL=causal, BLOCK_M=block_m, BLOCK_N=block_n,
    )  # fmt: skip
    return last_key.tolist(), *bounds.tolist()


def visible(row: int, num_queries: int, num_keys: int, causal: bool) -> int:
    """How many keys a query sees, by counting them."""
    position = num_keys - num_queries + row
    return sum(not causal or key <= position for key in range(num_keys))


def draw(seen_keys: Any) -> Any:
    """A chunk of 40 queries after 24 others, sorted by the learner's function."""
    from yaie.course.viz.tiles import draw_key_tiles

    rows = []
    for first_row in range(0, 40, 16):
        _, unmasked, end = run_tile(seen_keys, first_row, 40, 64, True, 16, 8, Observer())
        rows.append((first_row, unmasked // 8, -(-end // 8)))
    return draw_key_tiles(rows, 40, 64, 16, 8)
