"""26.3: the pieces of each thread block, in its order."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.causal_order import load

SIZES = ((1, 1, 1), (2, 4, 1), (3, 6, 1), (2, 3, 2), (3, 4, 2), (4, 3, 1), (5, 3, 4), (132, 32, 16))
ORDER = "The tiles that see the most keys come first, and all heads of a tile follow each other."
ROUNDS = (
    "A round gives one piece to each thread block: forwards in rounds 0, 2, 4, …, backwards in the "
    "others."
)


def cases() -> Iterator[Case]:
    for blocks, tiles, heads in SIZES:
        words = f"thread blocks: {blocks}, tiles of queries: {tiles}, heads: {heads}"
        yield Case(words, size=(blocks, tiles, heads))


def observe(pieces_of: Callable[..., Any], case: Case, see: Observer) -> None:
    blocks, tiles, heads = case.size
    every = []
    for block in range(blocks):
        what = f"pieces_of({block}, {blocks}, {tiles}, {heads})"
        with see.call(what):
            pieces = pieces_of(block, blocks, tiles, heads)
            every.append(see.tuples(what, pieces, 2, "a list of (tile, head)"))
    count = Counter(piece for pieces in every for piece in pieces)
    there = [(tile, head) for tile in range(tiles) for head in range(heads)]
    once = "Each piece is computed by one thread block, once."
    strange = sorted(piece for piece in count if piece not in there)
    see.equal("the list of pieces that do not exist", strange[:4], [], once)
    see.equal(
        "the list of pieces that are computed twice",
        [p for p in there if count[p] > 1][:4],
        [],
        once,
    )
    see.equal("the list of pieces left out", [p for p in there if not count[p]][:4], [], once)
    order = [(tiles - 1 - i // heads, i % heads) for i in range(len(there))]
    rounds = [order[i : i + blocks] for i in range(0, len(order), blocks)]
    first = [pieces[0] for pieces in every if pieces]
    see.equal("the list of first pieces, one per thread block", first, rounds[0], ORDER)
    wanted: list[list[tuple[int, int]]] = [[] for _ in range(blocks)]
    for number, pieces in enumerate(rounds):
        for i, piece in enumerate(pieces):
            wanted[blocks - 1 - i if number % 2 else i].append(piece)
    for block, pieces in enumerate(every):
        see.equal(f"the list of pieces of thread block {block}", pieces, wanted[block], ROUNDS)


def draw(pieces_of: Callable[..., Any]) -> Any:
    from yaie.course.viz.turns import draw_order

    every = [pieces_of(block, 8, 10, 4) for block in range(8)]
    return draw_order(every, max(load(pieces) for pieces in every))
