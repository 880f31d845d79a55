"""04.3: blocks that go back to the pool, and how many of them."""

from collections.abc import Iterator

from yaie.course.core.observe import Case
from yaie.course.exercises.nb04 import life, pictures
from yaie.course.exercises.nb04.life import case

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
draw = pictures.draw_evict
