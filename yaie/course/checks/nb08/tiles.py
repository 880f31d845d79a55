"""The check of key_tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaie.course.core.expect import equal, fail, given, short

WRONG_SEEN = [
    (
        lambda first, last, n, size: -(-max(0, last) // size),
        "The query at position {last} sees {keys} keys, its own included.",
    ),
    (
        lambda first, last, n, size: max(0, last + 1) // size,
        "A tile of which only a part is seen was skipped: round up what the last query sees, "
        "{keys} keys, to tiles of {size}.",
    ),
    (
        lambda first, last, n, size: -(-max(0, first + 1) // size),
        "This is what the first query sees. The last query sees more, and the tile is needed for "
        "it.",
    ),
    (
        lambda first, last, n, size: -(-n // size),
        "These are all tiles. Those that begin after the last query are seen by nobody.",
    ),
    (
        lambda first, last, n, size: -(-(last + 1) // size),
        "A query at a negative position sees nothing; no count is below 0.",
    ),
]
WRONG_WHOLE = [
    (
        lambda first, last, n, size: -(-max(0, first + 1) // size),
        "A tile that the first query sees in part was counted as whole; it would go without a "
        "mask. Round down.",
    ),
    (
        lambda first, last, n, size: max(0, last + 1) // size,
        "Counted for the last query. The first one sees less, and a whole tile is one that every "
        "query sees whole.",
    ),
    (
        lambda first, last, n, size: max(0, first) // size,
        "The query at position {first} sees the key at {first} too, so it sees {first} + 1 keys.",
    ),
    (
        lambda first, last, n, size: (first + 1) // size,
        "A query at a negative position sees nothing; no count is below 0.",
    ),
]


def check_tiles(key_tiles: Callable[..., Any]) -> None:
    case(key_tiles, 8, 15, 24, 4)  # the last query's keys end with a tile, the first one's do not
    case(key_tiles, 5, 14, 24, 4)
    case(key_tiles, 7, 12, 24, 4)
    case(key_tiles, 0, 3, 4, 4, causal=False)
    case(key_tiles, 0, 3, 10, 4, causal=False)
    for num_k in (0, 1, 7, 16, 17):
        for tile_k in (1, 4, 16, 32):
            for first in range(-3, num_k):
                for last in range(first, num_k):
                    case(key_tiles, first, last, num_k, tile_k)
                    case(key_tiles, first, last, num_k, tile_k, causal=False)


def case(
    key_tiles: Callable[..., Any],
    first: int,
    last: int,
    num_k: int,
    tile_k: int,
    causal: bool = True,
) -> None:
    whole, seen = by_the_mask(first, last, num_k, tile_k, causal)
    words = "" if causal else ", causal=False"
    with given(f"key_tiles(first={first}, last={last}, num_k={num_k}, tile_k={tile_k}{words})"):
        got = key_tiles(first, last, num_k, tile_k, causal)
        if not isinstance(got, tuple) or len(got) != 2:
            fail(f"it returned {short(got)}, expected two counts, (whole, seen).")
        equal(
            got[1],
            seen,
            "seen",
            because=reason(num_k, tile_k, causal, f"The last query sees {max(0, last + 1)} keys"),
            mistakes=[*short_tile(num_k, tile_k), *known(WRONG_SEEN, causal, *got_args(locals()))],
        )
        first_sees = f"The first query sees {max(0, first + 1)} keys"
        if causal and first >= num_k - 1 and got[0] == seen - 1:
            fail(
                f"whole is {got[0]}, expected {whole}. Every query sees all {num_k} keys, so the "
                "last tile is seen whole too; that it is a short one does not matter."
            )
        equal(
            got[0],
            whole,
            "whole",
            because=reason(num_k, tile_k, causal, first_sees),
            mistakes=[*short_tile(num_k, tile_k), *known(WRONG_WHOLE, causal, *got_args(locals()))],
        )


def got_args(names: dict[str, Any]) -> tuple[int, int, int, int]:
    return names["first"], names["last"], names["num_k"], names["tile_k"]


def by_the_mask(first: int, last: int, num_k: int, tile_k: int, causal: bool) -> tuple[int, int]:
    """Both counts, by asking of every tile how many of its keys each query sees."""
    whole = seen = 0
    for start in range(0, num_k, tile_k):
        keys = range(start, min(start + tile_k, num_k))
        sees = [not causal or key <= query for query in range(first, last + 1) for key in keys]
        whole += all(sees)
        seen += any(sees)
    return whole, seen


def reason(num_k: int, tile_k: int, causal: bool, words: str) -> str:
    if not causal:
        return f"Without a mask all {num_k} keys are seen whole, {-(-num_k // tile_k)} tiles."
    return f"{words}, in tiles of {tile_k}."


def short_tile(num_k: int, tile_k: int) -> list[tuple[int, str]]:
    if num_k % tile_k == 0 or num_k < tile_k:
        return []
    return [
        (
            num_k // tile_k,
            f"The last tile is missing: {num_k} keys in tiles of {tile_k} are "
            f"{-(-num_k // tile_k)} tiles, the last of {num_k % tile_k} keys.",
        )
    ]


def known(
    wrong: list[tuple[Callable[..., int], str]],
    causal: bool,
    first: int,
    last: int,
    num_k: int,
    tile_k: int,
) -> list[tuple[int, str]]:
    """What known mistakes give here."""
    arguments = first, last, num_k, tile_k
    if not causal:
        return [
            (f(*arguments), "causal=False hides nothing: all tiles are whole.") for f, _ in wrong
        ]
    facts = {"first": first, "last": last, "keys": max(0, last + 1), "size": tile_k}
    return [(f(*arguments), text.format(**facts)) for f, text in wrong]


def draw_sorted(key_tiles: Callable[..., Any]) -> Any:
    """Tiles of 16 queries against tiles of 12 keys, 64 queries after a past of 8."""
    from yaie.course.viz.tiles import draw_key_tiles

    past, num_q, tile_q, tile_k = 8, 64, 16, 12
    rows = [
        (start, *key_tiles(past + start, past + start + tile_q - 1, past + num_q, tile_k))
        for start in range(0, num_q, tile_q)
    ]
    return draw_key_tiles(rows, num_q, past + num_q, tile_q, tile_k)
