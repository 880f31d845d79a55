"""Which thread block computes which part of a matrix product, and how long the last of them takes.

A tile of c takes `steps` steps along k, and a GPU runs one thread block per SM. So tiles come in
rounds, and in the last round some SMs may have none. csrc/matmul/hopper/shares.cu splits the tiles
of that round along k, as `work_of` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FEWEST = 4  # steps of a part: fewer do not pay for the adding


class Part(NamedTuple):
    """Steps `first` to `last` - 1 of a tile of c."""

    tile: int
    first: int
    last: int


def work_of(block: int, blocks: int, tiles: int, steps: int) -> list[Part]:
    """What thread block `block` computes, in its order, if the last round is split along k.

    Rounds of `blocks` whole tiles come first: tile `block`, then every `blocks`-th one after it. If
    `rest` tiles are left, each is split among as many thread blocks as there are for all of them
    alike, into parts of at least `FEWEST` steps: part 0 of all these tiles goes to the first `rest`
    thread blocks, part 1 to the next, and so on. Part i of s has the steps from steps × i // s on,
    and ends before steps × (i + 1) // s. Tiles that cannot be split in two stay whole.

    Args:
        block: 0 to `blocks` - 1.
        blocks: how many run together, one per SM.
        tiles: of c.
        steps: of a tile.
    """
    rest = tiles % blocks
    splits = min(blocks // rest, steps // FEWEST) if rest else 1
    whole = tiles - rest if splits > 1 else tiles
    parts = [Part(tile, 0, steps) for tile in range(block, whole, blocks)]
    if splits > 1 and block < rest * splits:
        number, tile = divmod(block, rest)
        parts.append(Part(whole + tile, steps * number // splits, steps * (number + 1) // splits))
    return parts


def whole_tiles(block: int, blocks: int, tiles: int, steps: int) -> list[Part]:
    """The same with no tile split: a persistent kernel's loop."""
    return [Part(tile, 0, steps) for tile in range(block, tiles, blocks)]


def equal_shares(block: int, blocks: int, tiles: int, steps: int) -> list[Part]:
    """The same with all steps of all tiles in one line, of which each block gets an equal share.

    This is stream-K: a share begins and ends where it falls, in the middle of a tile.
    """
    at, end = (tiles * steps * number // blocks for number in (block, block + 1))
    parts = []
    while at < end:
        tile, first = divmod(at, steps)
        last = min(steps, first + end - at)
        parts.append(Part(tile, first, last))
        at += last - first
    return parts


def finish(work: Sequence[Sequence[Part]]) -> int:
    """When the last thread block is done, in steps."""
    return max(sum(part.last - part.first for part in parts) for parts in work)


def busy(work: Sequence[Sequence[Part]]) -> float:
    """The share of the SMs' time until then in which they multiply."""
    done = sum(part.last - part.first for parts in work for part in parts)
    return done / (finish(work) * len(work))


def apart(work: Sequence[Sequence[Part]], time: int) -> int:
    """How many different steps along k are computed at a time, in steps from the start."""
    places = set()
    for parts in work:
        left = time
        for part in parts:
            if left < part.last - part.first:
                places.add(part.first + left)
                break
            left -= part.last - part.first
    return len(places)
