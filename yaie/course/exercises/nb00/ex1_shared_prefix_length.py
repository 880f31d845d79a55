"""00.1: the number of leading tokens that two prompts have in common."""

import random
from collections.abc import Callable, Iterator
from itertools import takewhile
from numbers import Integral
from typing import Any

from yaie.course.core.observe import Case, Observer


def cases() -> Iterator[Case]:
    yield pair([5, 8, 13], [5, 8, 21, 34], "The third tokens differ.")
    yield pair([5, 8, 13], [5, 8, 13], "Equal sequences share all of their tokens.")
    yield pair([4, 7, 1, 2], [4, 2, 7, 1], "Only leading tokens count.")
    yield pair([7, 1, 2], [3, 1, 2], "The first tokens already differ, so no prefix is shared.")
    yield pair([1, 2, 9, 4, 5], [1, 2, 3, 4, 5], "A prefix ends at the first difference.")
    yield pair([], [1, 2], "An empty sequence shares nothing.")
    yield pair([], [], "An empty sequence shares nothing.")
    yield pair([0, 0, 0], [0, 0, 0, 0], "The shorter one is a prefix of the longer one.")
    yield pair([7, 4093, 20617], [7, 4093, 31], "The third tokens differ.")
    yield pair([4093, 20617], [4093, 20617, 4093], "The shorter one is a prefix of the longer one.")
    yield pair([5, 8, 2], [5, 8, 21], "The third tokens differ, though their digits begin alike.")
    generator = random.Random(0)
    for _ in range(300):
        a = [generator.randrange(3) for _ in range(generator.randrange(8))]
        b = a[: generator.randrange(8)] + [generator.randrange(3) for _ in range(3)]
        yield pair(a, b, "The oracle compares the two token by token.")


def pair(a: list[int], b: list[int], because: str) -> Case:
    return Case(f"the prompts {a} and {b}", a=a, b=b, because=because)


def observe(shared_prefix_length: Callable[..., int], case: Case, see: Observer) -> None:
    # Each token becomes an object of its own, as a tokenizer makes it; Python shares small ints.
    a, b = ([int(str(token)) for token in tokens] for tokens in (case.a, case.b))
    with see.call("shared_prefix_length(a, b)"):
        got = shared_prefix_length(a, b)
    see.kind("shared_prefix_length(a, b)", got, Integral, "an int")
    shared = list(takewhile(lambda both: both[0] == both[1], zip(case.a, case.b, strict=False)))
    see.equal("shared_prefix_length(a, b)", got, len(shared), case.because)
    see.equal("(a, b) after the call", (a, b), (case.a, case.b), "The caller still needs both.")


def draw(shared_prefix_length: Callable[..., int]) -> Any:
    """Two prompts as rows of tokens; what they share, by the learner's count, in color."""
    from yaie.course.viz import style
    from yaie.course.viz.page import Page

    a, b = [5, 8, 13, 2, 2, 7], [5, 8, 13, 9, 2, 7, 1, 4]
    shared = shared_prefix_length(a, b)
    page = Page(5.2, 1.4)
    page.put(0.1, 0.22, f"{shared} shared tokens", style.TITLE)
    for row, tokens in enumerate((a, b)):
        for column, token in enumerate(tokens):
            x, y = 0.1 + 0.63 * column, 0.42 + 0.47 * row
            face = style.tint(style.SHARED, 0.5) if column < shared else style.WASH
            page.cell(x, y, 0.57, 0.4, str(token), face, size=style.BODY)
    page.say(f"Two rows of tokens, {a} and {b}: {shared} shared tokens")
    return page.figure
