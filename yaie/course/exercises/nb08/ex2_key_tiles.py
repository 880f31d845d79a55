"""08.2: the counts that `key_tiles` returns, beside what the mask itself says."""

from collections.abc import Callable, Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer


def cases() -> Iterator[Case]:
    yield new_case(8, 15, 24, 4)  # the last query's keys end with a tile, the first one's do not
    yield new_case(5, 14, 24, 4)
    yield new_case(7, 12, 24, 4)
    yield new_case(0, 3, 4, 4, causal=False)
    yield new_case(0, 3, 10, 4, causal=False)
    for num_k in (0, 1, 7, 16, 17):
        for tile_k in (1, 4, 16, 32):
            for first in range(-3, num_k):
                for last in range(first, num_k):
                    yield new_case(first, last, num_k, tile_k)
                    yield new_case(first, last, num_k, tile_k, causal=False)


def new_case(first: int, last: int, num_k: int, tile_k: int, causal: bool = True) -> Case:
    call = f"first={first}, last={last}, num_k={num_k}, tile_k={tile_k}, causal={causal}"
    return Case(call, arguments=(first, last, num_k, tile_k, causal))


def observe(key_tiles: Callable[..., Any], case: Case, see: Observer) -> None:
    first, last, num_k, tile_k, causal = case.arguments
    with see.call("key_tiles"):
        got = key_tiles(*case.arguments)
    got = see.parts("key_tiles", got, "whole", "seen")
    whole, seen = by_the_mask(*case.arguments)
    free = f"Without a mask every query sees all {num_k} keys, in tiles of {tile_k}."
    why = free, free
    if causal:
        sees = [min(num_k, max(0, position + 1)) for position in (first, last)]
        why = (
            f"The first query sees {sees[0]} of {num_k} keys, in tiles of {tile_k}.",
            f"The last query sees {sees[1]} of {num_k} keys, in tiles of {tile_k}.",
        )
    see.equal("seen", got[1], seen, why[1])
    see.equal("whole", got[0], whole, why[0])


def by_the_mask(first: int, last: int, num_k: int, tile_k: int, causal: bool) -> tuple[int, int]:
    """Both counts, by asking of every tile how many of its keys each query sees."""
    whole = seen = 0
    for start in range(0, num_k, tile_k):
        keys = range(start, min(start + tile_k, num_k))
        sees = [not causal or key <= query for query in range(first, last + 1) for key in keys]
        whole += all(sees)
        seen += any(sees)
    return whole, seen


def draw(key_tiles: Callable[..., Any]) -> Any:
    """Tiles of 16 queries against tiles of 12 keys, 64 queries after a past of 8."""
    from yaie.course.viz.tiles import draw_key_tiles

    past, num_q, tile_q, tile_k = 8, 64, 16, 12
    rows = [
        (start, *key_tiles(past + start, past + start + tile_q - 1, past + num_q, tile_k))
        for start in range(0, num_q, tile_q)
    ]
    return draw_key_tiles(rows, num_q, past + num_q, tile_q, tile_k)
