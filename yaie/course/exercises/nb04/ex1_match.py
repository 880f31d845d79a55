"""04.1: the blocks that hold a prompt's beginning."""

from collections.abc import Iterator

from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import life, pictures
from yaie.course.exercises.nb04.life import PROMPT, case


def cases() -> Iterator[Case]:
    for prompt in ([*PROMPT, 99], PROMPT, PROMPT[:5], PROMPT[:4], PROMPT[:2], PROMPT[:1], [],
                   [1, 2, 3, 99, 5, 6], [99, 2, 3, 4, 5, 6]):  # fmt: skip
        yield case(("keep", PROMPT), ("match", prompt))
    for prompt in ([1], [1, 2]):
        yield case(("keep", [1, 2]), ("match", prompt), size=1)
    yield case(("keep", [*map(ord, "radix!")]), ("match", "radix?"), ("match", "radix!"))
    longer, adapted = [*PROMPT, 99], ("keep", PROMPT, "adapter")
    yield case(adapted, ("match", longer))
    yield case(adapted, ("keep", PROMPT), ("match", longer, "adapter"), ("match", longer))
    yield case(("keep", PROMPT), ("match", longer), ("evict", 3), ("match", longer))
    used = ("match", [1, 2, 9])
    yield case(("keep", [1, 2]), ("keep", [3, 4]), used, ("evict", 1), used)
    yield case(("keep", PROMPT), ("keep", [7, 8]), ("match", PROMPT), ("evict", 1))
    yield case(*life.random_steps(seed=1), num_blocks=16)


observe = life.observe
draw = pictures.draw_match
