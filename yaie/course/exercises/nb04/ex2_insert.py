"""04.2: what the cache keeps of a request, and which references it takes."""

from collections.abc import Iterator

from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import life, pictures
from yaie.course.exercises.nb04.life import PROMPT, case


def cases() -> Iterator[Case]:
    yield case(("start", "a", PROMPT[:5]), ("insert", "a", 5), ("end", "a"))
    yield case(("start", "a", [1]), ("insert", "a", 1))
    yield case(("start", "a", PROMPT[:5]), ("insert without the last", "a", 5))
    grows = [("insert", "a", length) for length in (4, 4, 7)]
    yield case(("start", "a", [*PROMPT, 7]), *grows)
    same = [("start", name, PROMPT[:4]) for name in "ab"]
    yield case(*same, ("insert", "a", 4), ("insert", "b", 4), ("end", "a"), ("end", "b"))
    branch = ("start", "b", [1, 2, 7, 8, 9]), ("insert", "b", 5)
    yield case(("start", "a", PROMPT), ("insert", "a", 6), *branch)
    yield case(("start", "a", [1, 2], "adapter"), ("insert", "a", 2))
    yield case(("start", "a", PROMPT), ("insert too few", "a", 2))
    yield case(("start", "a", PROMPT), ("insert a free one", "a"))
    yield case(*life.random_steps(seed=2), num_blocks=16)


observe = life.observe
draw = pictures.draw_insert
