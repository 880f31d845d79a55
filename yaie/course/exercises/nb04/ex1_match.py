"""04.1: the blocks that hold a prompt's beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import NOTEBOOK, life
from yaie.course.exercises.nb04.life import PROMPT, case

EXERCISE = Exercise(
    id="04.1",
    notebook=NOTEBOOK,
    slug="match",
    title="Find the blocks that hold a prompt's beginning",
    target="yaie.engine.prefix_cache:RadixCache.match",
    task=(
        "A request arrives. Ask the tree, `self.tree`, for the blocks that hold the beginning "
        "of its tokens, but leave at least one token to compute: without a forward pass "
        "there are no logits, and without logits no next token."
    ),
    difficulty=1,
    minutes=5,
    hints=(
        "The tree does the searching, and takes care of whole blocks and of the path to the "
        "node. The one thing it does not know is that a request must compute something. So "
        "decide how many of the tokens it may see before you ask it.",
        "Of n tokens at most n - 1 may be found. The node, the length and the blocks in the "
        "answer describe the same prefix. That holds if the tokens are cut before the search; "
        "it is hard to restore if the answer is cut after it.",
        "Two lines: the tokens that may be found, and the search among them.\n"
        "    searched = token_ids[: ...]\n"
        "    return self.tree.match(searched, ...)\n"
        "There may be no tokens at all, and the tree keeps namespaces apart only if you name "
        "the one you mean.",
    ),
    proves=(
        "It leaves a token over, keeps namespaces apart, takes nothing, and agrees with a "
        "naive oracle through 400 steps of a random trace."
    ),
    part="radix_cache",
)


def cases() -> Iterator[Case]:
    for prompt in ([*PROMPT, 99], PROMPT, PROMPT[:5], PROMPT[:4], PROMPT[:2], PROMPT[:1], [],
                   [1, 2, 3, 99, 5, 6], [99, 2, 3, 4, 5, 6]):  # fmt: skip
        yield case(("keep", PROMPT), ("match", prompt))
    for prompt in ([1], [1, 2]):
        yield case(("keep", [1, 2]), ("match", prompt), size=1)
    longer, adapted = [*PROMPT, 99], ("keep", PROMPT, "adapter")
    yield case(adapted, ("match", longer))
    yield case(adapted, ("keep", PROMPT), ("match", longer, "adapter"), ("match", longer))
    yield case(("keep", PROMPT), ("match", longer), ("evict", 3), ("match", longer))
    used = ("match", [1, 2, 9])
    yield case(("keep", [1, 2]), ("keep", [3, 4]), used, ("evict", 1), used)
    yield case(*life.random_steps(seed=1), num_blocks=16)


observe = life.observe


def draw(RadixCache: type) -> Any:
    from yaie.course.exercises.nb04.pictures import draw_match

    return draw_match(RadixCache)
