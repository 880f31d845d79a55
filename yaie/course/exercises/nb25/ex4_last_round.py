"""25.4: what each thread block computes, beside a dealer who hands out rounds of parts."""

from collections.abc import Callable, Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.rounds import FEWEST, Part

GRIDS = (  # thread blocks, tiles, steps
    *((4, 8, 8), (4, 6, 8), (5, 7, 9), (8, 3, 40), (8, 1, 22), (4, 7, 64), (4, 6, 7), (3, 2, 8)),
    (4, 6, 3),  # fewer steps than a part has at least
    *((7, 2, 64), (6, 10, 12), (1, 3, 5), (132, 64, 64), (132, 512, 64), (132, 28, 224)),
)
ROUND = "Whole tiles come in rounds: tile `block`, then every `blocks`-th one."
SPLIT = "The last round has rest = {rest} tiles for {blocks} thread blocks: {parts}."
ONCE = "Each step of each tile is computed by exactly one thread block."


def cases() -> Iterator[Case]:
    for blocks, tiles, steps in GRIDS:
        name = f"tiles: {tiles}, steps: {steps}, thread blocks: {blocks}"
        yield Case(name, blocks=blocks, tiles=tiles, steps=steps)


def dealt(blocks: int, tiles: int, steps: int) -> tuple[list[list[Part]], int]:
    """What each thread block gets if rounds are dealt out one after the other, and into how many
    parts a tile of the last one is split."""
    hands: list[list[Part]] = [[] for _ in range(blocks)]
    deck = list(range(tiles))
    while len(deck) >= blocks:
        for hand in hands:
            hand.append(Part(deck.pop(0), 0, steps))
    splits = 1
    while deck and (splits + 1) * len(deck) <= blocks and (splits + 1) * FEWEST <= steps:
        splits += 1
    units = [(number, tile) for number in range(splits) for tile in deck]
    for hand, (number, tile) in zip(hands, units, strict=False):
        hand.append(Part(tile, steps * number // splits, steps * (number + 1) // splits))
    return hands, splits


def observe(work_of: Callable[..., list[Part]], case: Case, see: Observer) -> None:
    blocks, tiles, steps = case.blocks, case.tiles, case.steps
    wanted, splits = dealt(blocks, tiles, steps)
    got = []
    for block in range(blocks):
        what = f"work_of({block}, {blocks}, {tiles}, {steps})"
        with see.call(what):
            parts = work_of(block, blocks, tiles, steps)
            got.append(see.tuples(what, parts, 3, "a list of parts"))
    into = f"each is split into {splits} parts" if splits > 1 else "none of them can be split"
    because = SPLIT.format(rest=tiles % blocks, blocks=blocks, parts=into)
    for block in shown(got, wanted):
        mine, right = got[block], [tuple(part) for part in wanted[block]]
        full = tiles // blocks
        name = f"thread block {block}'s work"
        see.equal(f"{name} in full rounds", mine[:full], right[:full], ROUND)
        see.equal(f"{name} in the last round", mine[full:], right[full:], because)
    computed = sorted(step for parts in got for part in parts for step in steps_of(part))
    every = [(tile, step) for tile in range(tiles) for step in range(steps)]
    missing = len(set(every) - set(computed))
    twice = len(computed) - len(set(computed))
    see.equal("the number of steps that are missing", missing, 0, ONCE)
    see.equal("the number of steps that are computed again", twice, 0, ONCE)


def shown(got: list, wanted: list) -> list[int]:
    """Up to eight thread blocks: the first that are wrong, then the first of all."""
    wrong = [b for b, parts in enumerate(got) if parts != [tuple(p) for p in wanted[b]]]
    return sorted({*wrong[:3], *range(min(5, len(got)))})


def steps_of(part: tuple) -> list[tuple[int, int]]:
    return [(part[0], step) for step in range(part[1], part[2])]


def draw(work_of: Callable[..., list[Part]]) -> Any:
    """The learner's rounds: 8 tiles of 12 steps on 6 SMs."""
    from yaie.course.viz.waves import Waves, draw_waves

    return draw_waves(Waves("yours", [work_of(block, 6, 8, 12) for block in range(6)], 12))
