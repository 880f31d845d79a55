"""Exercises of notebook 00: one small function, to learn how an exercise works."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from yaie.course.core.expect import equal, given
from yaie.course.core.manifest import Exercise

NOTEBOOK = "00_start_here"

CASES = [
    ([5, 8, 13], [5, 8, 21, 34], "the third tokens differ"),
    ([5, 8, 13], [5, 8, 13], "equal sequences share all of their tokens"),
    ([4, 7, 1, 2], [4, 2, 7, 1], "only leading tokens count, not tokens found elsewhere"),
    ([7, 1, 2], [3, 1, 2], "the first tokens differ already, so no prefix is shared"),
    ([1, 2, 9, 4, 5], [1, 2, 3, 4, 5], "a prefix ends at the first difference, for good"),
    ([], [1, 2], "an empty sequence shares nothing"),
    ([], [], "an empty sequence shares nothing"),
    ([0, 0, 0], [0, 0, 0, 0], "the shorter one is a prefix of the longer"),
]


def oracle(a: list[int], b: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


def check_shared_prefix_length(shared_prefix_length: Callable[..., int]) -> None:
    generator = random.Random(0)
    drawn = []
    for _ in range(300):
        a = [generator.randrange(3) for _ in range(generator.randrange(8))]
        b = a[: generator.randrange(8)] + [generator.randrange(3) for _ in range(3)]
        drawn.append((a, b, "the oracle compares the two token by token"))
    for a, b, because in CASES + drawn:
        call = f"shared_prefix_length({a}, {b})"
        kept = list(a), list(b)
        ends = "One of the two ends first: no index may pass the end of the shorter one"
        with given(call, errors={IndexError: ends}):
            got = shared_prefix_length(a, b)
        everywhere = sum(x == y for x, y in zip(a, b, strict=False))
        equal(
            got,
            oracle(a, b),
            call,
            because=f"Here {because}.",
            mistakes=[
                (None, "Did the function reach its end without `return`?"),
                (everywhere, "Tokens that are equal after the first difference do not count."),
                (len(set(a) & set(b)), "Tokens count by position, not by occurring in both."),
                (oracle(a, b) - 1, "That is one too few: a length, not the index of its end."),
                (oracle(a, b) + 1, "That is one too many: the token that differs is not shared."),
            ],
        )
        equal((a, b), kept, f"{call} changed its arguments: (a, b)")


def draw_shared_prefix(shared_prefix_length: Callable[..., int]) -> Any:
    """Two prompts as rows of tokens; what they share, by the learner's count, in color."""
    from yaie.course.viz import style

    a, b = [5, 8, 13, 2, 2, 7], [5, 8, 13, 9, 2, 7, 1, 4]
    shared = shared_prefix_length(a, b)
    page = style.Page(5.2, 1.4)
    style.put(page.ax, 0.1, 0.22, f"{shared} shared tokens", style.TITLE)
    for row, tokens in enumerate((a, b)):
        for column, token in enumerate(tokens):
            x, y = 0.1 + 0.63 * column, 0.42 + 0.47 * row
            face = style.tint(style.SHARED, 0.5) if column < shared else style.WASH
            style.box(page.ax, x, y, 0.57, 0.4, face)
            style.put(page.ax, x + 0.285, y + 0.2, str(token), ha="center")
    page.say(f"Two rows of tokens, {a} and {b}: {shared} shared tokens")
    return page.figure


EXERCISES = [
    Exercise(
        id="00.1",
        notebook=NOTEBOOK,
        slug="shared_prefix_length",
        title="Count the tokens that two prompts share",
        target="yaie.engine.radix:shared_prefix_length",
        task=(
            "Two prompts arrive as lists of token ids. Return how many tokens they have in "
            "common at their start: what was computed for those need not be computed again."
        ),
        difficulty=1,
        minutes=5,
        hints=(
            "Walk along both sequences at once, and stop where they part.",
            "At every moment, your count is the length of a prefix that you know both have. It "
            "may only grow by one, and only while the next two tokens are equal. Either sequence "
            "may end first.",
            "A `for` over `zip(a, b)` ends with the shorter one by itself. Inside it: if the two "
            "tokens differ, `break`; otherwise add one. Return the count after the loop.",
        ),
        proves="It agrees with an independent oracle on 308 pairs, some empty, some equal.",
        check=check_shared_prefix_length,
        picture=draw_shared_prefix,
    ),
]
