"""04.3: blocks that go back to the pool, and how many of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import NOTEBOOK, life
from yaie.course.exercises.nb04.life import case

EXERCISE = Exercise(
    id="04.3",
    notebook=NOTEBOOK,
    slug="evict",
    title="Give blocks back when memory runs short",
    target="yaie.engine.prefix_cache:RadixCache.evict, RadixCache.make_room",
    task=(
        "`evict` gives the blocks used longest ago back to the pool. `make_room` evicts until "
        "a request's blocks are free: no more than needed, and nothing at all if it cannot "
        "succeed. You have `self.tree.evict(number)`, which takes unlocked blocks out of the "
        "tree and returns them, `self.pool.release(blocks)`, `self.pool.num_free` and "
        "`self.num_available`."
    ),
    difficulty=2,
    minutes=10,
    hints=(
        "The tree chooses what goes and the pool counts the users of each block. Both have to "
        "be told: a block that only the tree forgets is lost, and one that only the pool frees "
        "is found again by the next match.",
        "After evict, as before it, a block is named by the tree exactly if the cache is one "
        "of its users. make_room can be decided beforehand: what is free already, and what "
        "could be evicted now, is `self.num_available`. Locked blocks are not part of that.",
        "evict is three steps: let `self.tree.evict(...)` take blocks out of the tree, release "
        "them, return how many they are. make_room is\n"
        "    if num_blocks > ...:\n"
        "        return False\n"
        "    self.evict(...)\n"
        "    return True\n"
        "where what is evicted is the difference between what is wanted and what is free. A "
        "negative difference evicts nothing.",
    ),
    proves=(
        "Through 400 steps of a random trace the blocks that a naive oracle evicts are "
        "evicted and no others, and none that is locked."
    ),
    part="radix_cache",
)
OLD = [1, 2, 3, 4]  # two blocks
FULL = ("keep", OLD), ("keep", [5, 6]), ("keep", [7, 8])  # four of five blocks


def cases() -> Iterator[Case]:
    for number in (1, 2, 3, 4, 9, 0):
        yield case(*FULL, ("evict", number), num_blocks=5)
    yield case(*FULL, ("lock", OLD), ("evict", 4), num_blocks=5)
    for number in (0, 1, 2, 5, 6):
        yield case(*FULL, ("make_room", number), num_blocks=5)
    yield case(*FULL, ("lock", OLD), ("make_room", 4), num_blocks=5)
    yield case(*life.random_steps(seed=3), num_blocks=16)


observe = life.observe


def draw(RadixCache: type) -> Any:
    from yaie.course.exercises.nb04.pictures import draw_evict

    return draw_evict(RadixCache)
