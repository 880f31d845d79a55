"""Solution of exercise 25.4: A last round for all SMs.

A persistent kernel has one thread block per SM, and each computes tile after tile. If the tiles
do not divide evenly, the last round leaves SMs idle. Return what thread block `block` computes:
first its whole tiles, every `blocks`-th one from tile `block` on, as long as rounds are full;
then at most one part of the `rest` tiles that are left. Each of these is split along k into as
many parts as there are thread blocks for (all tiles into the same number), but a part has at
least FEWEST steps. Part 0 of all these tiles goes to thread blocks 0 to rest - 1, part 1 to the
next `rest`, and so on. If no tile can be split in two, the last tiles stay whole.

Generated from work_of in yaie/course/lessons/rounds.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.course.lessons.rounds import FEWEST, Part


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
