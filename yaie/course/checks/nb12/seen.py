"""The check of what a tile of queries sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaie.course.checks.nb10.common import spaced
from yaie.course.core.expect import equal, fail, given

RETURNS = {
    ValueError: "It returns three values: last_key, a block of [BLOCK_M], unmasked and end.",
    TypeError: "It returns three values: last_key, a block of [BLOCK_M], unmasked and end.",
}
NOBODY = -(1 << 30)


def check_seen(seen_keys: Any) -> None:
    for case in cases():
        one_tile(seen_keys, *case)


def cases() -> Iterator[tuple[int, int, int, bool, int, int]]:
    """First row, queries, keys, causal, BLOCK_M, BLOCK_N."""
    yield 4, 8, 8, True, 4, 2  # a prompt without a past
    yield 4, 8, 18, True, 4, 2  # a chunk of a prompt, after 10 tokens
    yield 0, 1, 50, True, 16, 16  # a decode step
    yield 0, 1, 50, False, 16, 16
    yield 16, 24, 40, False, 16, 16  # a last tile of 8 queries
    for num_queries, num_keys in ((1, 1), (20, 20), (33, 100), (17, 128), (20, 7), (5, 0)):
        for causal in (True, False):
            for block_m, block_n in ((16, 16), (32, 8), (16, 64)):
                for first_row in range(0, num_queries, block_m):
                    yield first_row, num_queries, num_keys, causal, block_m, block_n


def run(seen_keys: Any, first_row: int, num_queries: int, num_keys: int, causal: bool,
        block_m: int, block_n: int) -> tuple[list[int], int, int]:  # fmt: skip
    """What the learner's function says of one tile."""
    import torch

    from yaie.course.checks.nb12.kernels import seen_kernel
    from yaie.course.core.triton import launch

    last_key = spaced(torch.full((block_m,), NOBODY, dtype=torch.int32))
    bounds = spaced(torch.full((2,), NOBODY, dtype=torch.int32))
    arguments = {
        "last_key": last_key, "bounds": bounds, "first_row": first_row,
        "num_queries": num_queries, "num_keys": num_keys,
    }  # fmt: skip
    launch(
        seen_kernel, (1,), arguments,
        SEEN=seen_keys, CAUSAL=causal, BLOCK_M=block_m, BLOCK_N=block_n,
    )  # fmt: skip
    return last_key.tolist(), *bounds.tolist()


def one_tile(seen_keys: Any, first_row: int, num_queries: int, num_keys: int, causal: bool,
             block_m: int, block_n: int) -> None:  # fmt: skip
    rows = range(first_row, min(first_row + block_m, num_queries))
    sees = [visible(row, num_queries, num_keys, causal) for row in rows]
    by_all = min(sees)
    past = num_keys - num_queries
    call = (
        f"queries {rows.start} to {rows.stop - 1} of {num_queries}, {num_keys} keys, "
        f"{'causal' if causal else 'not causal'}, BLOCK_M = {block_m}, BLOCK_N = {block_n}"
    )
    with given(call, RETURNS):
        last_key, unmasked, end = run(
            seen_keys, first_row, num_queries, num_keys, causal, block_m, block_n
        )
        last_key = [max(key, -1) for key in last_key[: len(rows)]]
        want = [count - 1 for count in sees]
        top_left = [min(row, num_keys - 1) for row in rows]
        equal(
            last_key,
            want,
            f"last_key of the {len(rows)} queries",
            because=(
                f"Query i is token {past:+d} + i of the sequence."
                if causal
                else "Without a causal mask every query sees all keys, the last of which is "
                f"{num_keys - 1}."
            ).replace("token +", "token "),
            mistakes=[
                (top_left, "The queries are the last tokens of the sequence, not the first: query "
                 f"0 is token num_keys - num_queries = {past}."),
                ([max(x - 1, -1) for x in want], "One key too few: a query sees its own key too."),
                ([x + 1 for x in want], "One key too many: this lets each query see the next "
                 "token."),
                ([min(row - past, num_keys - 1) for row in rows], "The past has the wrong sign: "
                 "there are num_keys - num_queries tokens before query 0."),
            ],
        )  # fmt: skip
        whole = by_all // block_n * block_n
        of_last = max(sees) // block_n * block_n
        for_unmasked = [
            (by_all, "It ends inside a tile of keys. Only whole tiles can go without a mask."),
            (-(-by_all // block_n) * block_n, f"The first query sees {by_all} keys; this was "
             "rounded up, and the last of these tiles is not seen whole."),
            (of_last, "That is what the last query of the tile sees. The first one sees "
             f"{by_all} keys, and the loop without a mask must be right for it as well."),
            (0, "Right, but slow: every tile would be masked. Of "
             f"{by_all} keys that the first query sees, {whole} lie in whole tiles."),
        ]  # fmt: skip
        if unmasked < 0:
            fail(f"unmasked is {unmasked}. A tile that sees nothing has 0 keys, not fewer.")
        equal(
            unmasked,
            whole,
            "unmasked",
            because=f"The first query of the tile sees {by_all} keys, in whole tiles {whole}.",
            mistakes=[(x, text) for x, text in for_unmasked if x != whole],
        )
        equal(
            max(end, 0),
            max(sees),
            "end",
            because=f"The last query of the tile sees {max(sees)} keys.",
            mistakes=[
                (num_keys, "That is all keys: the tiles that no query of this tile sees would be "
                 "computed, and masked away. Skipping them halves the work of a prompt."),
                (first_row + block_m + past, "It is beyond the last key: a tile of queries may "
                 f"have rows that do not exist. There are {num_keys} keys."),
                (by_all, "That is what the first query sees; the last one sees more."),
                (max(sees) - 1, "`end` is one more than the last key that is seen."),
                (first_row + block_m, "The queries are the last tokens of the sequence, not the "
                 f"first: {past} come before them."),
            ],
        )  # fmt: skip


def visible(row: int, num_queries: int, num_keys: int, causal: bool) -> int:
    """How many keys a query sees, by counting them."""
    position = num_keys - num_queries + row
    return sum(not causal or key <= position for key in range(num_keys))


def draw_sorted(seen_keys: Any) -> Any:
    """A chunk of 40 queries after 24 others, sorted by the learner's function."""
    from yaie.course.viz.tiles import draw_key_tiles

    rows = []
    for first_row in range(0, 40, 16):
        _, unmasked, end = run(seen_keys, first_row, 40, 64, True, 16, 8)
        rows.append((first_row, unmasked // 8, -(-end // 8)))
    return draw_key_tiles(rows, 40, 64, 16, 8)
