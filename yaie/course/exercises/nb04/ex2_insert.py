"""04.2: what the cache keeps of a request, and which references it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import NOTEBOOK, life
from yaie.course.exercises.nb04.life import PROMPT, case

EXERCISE = Exercise(
    id="04.2",
    notebook=NOTEBOOK,
    slug="insert",
    title="Keep what a request has computed",
    target="yaie.engine.prefix_cache:RadixCache.insert",
    task=(
        "A request has computed some tokens, and `blocks` is its block table. Put the full "
        "blocks into the tree, and make the cache one more user of those that the tree did "
        "not have. Nothing is taken from the request: it goes on, and releases its table when "
        "it ends. You have `self.tree.insert(tokens, values, namespace)`, which returns the "
        "node at the end and how many tokens were there before, and `self.pool.share(blocks)`."
    ),
    difficulty=2,
    minutes=12,
    hints=(
        "Two requests may have computed the same tokens, each into blocks of its own. The "
        "tree keeps one block for each; so first let it tell you which of yours it took, and "
        "then count references for those only.",
        "At every moment, a block's reference count is the number of tables that name it, "
        "plus one if the tree names it. insert changes what the tree names, so it must "
        "change exactly those counts, by one. A block that is not full is not named by the "
        "tree.",
        "Count the full blocks and raise ValueError if `blocks` has fewer. Then\n"
        "    node, length = self.tree.insert(...)\n"
        "where `length` says how many tokens were there before: the blocks of those are not "
        "new. `self.pool.share(...)` the slice of `blocks` between them and the last full "
        "one, and return the node.",
    ),
    proves=(
        "Through 400 steps of a random trace each block has as many users as tables and tree "
        "name it, and the tree names what a naive oracle names."
    ),
    part="radix_cache",
)


def cases() -> Iterator[Case]:
    yield case(("start", "a", PROMPT[:5]), ("insert", "a", 5), ("end", "a"))
    yield case(("start", "a", [1]), ("insert", "a", 1))
    grows = [("insert", "a", length) for length in (4, 4, 7)]
    yield case(("start", "a", [*PROMPT, 7]), *grows)
    same = [("start", name, PROMPT[:4]) for name in "ab"]
    yield case(*same, ("insert", "a", 4), ("insert", "b", 4), ("end", "a"), ("end", "b"))
    branch = ("start", "b", [1, 2, 7, 8, 9]), ("insert", "b", 5)
    yield case(("start", "a", PROMPT), ("insert", "a", 6), *branch)
    yield case(("start", "a", [1, 2], "adapter"), ("insert", "a", 2))
    yield case(("start", "a", PROMPT), ("insert too few", "a", 2))
    yield case(*life.random_steps(seed=2), num_blocks=16)


observe = life.observe


def draw(RadixCache: type) -> Any:
    from yaie.course.exercises.nb04.pictures import draw_insert

    return draw_insert(RadixCache)
