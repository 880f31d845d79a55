"""25.2: the product of a warp group, with every access and every landing checked."""

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import product_of
from yaie.course.exercises.nb25.asynchrony import see_product

NAME = "matmul_wgmma"
SIZES = ((72, 128, 192), (130, 136, 136))
ONCE = ((128, 128, 64), (5, 16, 24), (128, 264, 8), (200, 8, 72))
BECAUSE = "sums[i] collects rows 64 i to 64 i + 63 of the tile, over all 64 values of k in each."


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(*(product_of(*size, "f16") for size in SIZES))
    for size in ONCE:
        yield product_of(*size, "bf16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    see_product(see, path, NAME, case, BECAUSE)
