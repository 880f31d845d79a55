"""25.3: a ring of stages, a producer and a consumer, with every landing checked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import product_of
from yaie.course.exercises.nb25.asynchrony import see_product

NAME = "matmul_producer"
SIZES = ((128, 128, 64 * 14), (130, 136, 136))  # twice around the ring, and less than once
ONCE = ((5, 16, 24), (128, 264, 8), (16, 16, 64 * 20))
BECAUSE = "Every tile along k is loaded once and multiplied once."


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(*(product_of(*size, "f16") for size in SIZES))
    for size in ONCE:
        yield product_of(*size, "bf16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    see_product(see, path, NAME, case, BECAUSE)


def draw(path: Path) -> Any:
    """The learner's kernel along time, in the notebook's model."""
    from yaie.course.lessons.data_nb25 import replay, trace
    from yaie.course.viz.wgmma import draw_roles

    return draw_roles(replay(trace(path, tiles=10)))
