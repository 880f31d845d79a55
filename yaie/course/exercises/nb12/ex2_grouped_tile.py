"""12.2: the order of tiles that `grouped_tile` gives, beside a list of them."""

from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import launch
from yaie.course.exercises.nb12.kernels import order_kernel
from yaie.course.lessons.tile_order import grouped, row_major

GRIDS = [
    (4, 3, 2),
    (4, 4, 2),
    (5, 3, 2),
    (3, 7, 8),
    (6, 5, 3),
    (1, 1, 1),
    (4, 5, 1),
    (7, 2, 4),
    (1, 9, 8),
    (9, 1, 4),
    (13, 11, 8),
]


def cases() -> Iterator[Case]:
    for tiles_m, tiles_n, group in GRIDS:
        name = f"{tiles_m} × {tiles_n} tiles, GROUP = {group}"
        yield Case(name, grid=(tiles_m, tiles_n, group))


def observe(grouped_tile: Any, case: Case, see: Observer) -> None:
    with see.call("grouped_tile"):
        got = order_of(grouped_tile, *case.grid)
    want = grouped(*case.grid)
    wrong = next((i for i, pair in enumerate(zip(got, want, strict=True)) if len({*pair}) > 1), -1)
    problem = f"{wrong} is {got[wrong]}, expected {want[wrong]}" if wrong >= 0 else ""
    why = (
        "Tiles go down the rows of a group first, then to the next column, then to the next group."
    )
    see.note("the place of tile", got, problem, why)


def order_of(grouped_tile: Any, tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """The place of every tile, computed by a kernel that calls the learner's function."""
    out = torch.full((tiles_m * tiles_n, 2), -1, dtype=torch.int32)
    arguments = {"out": out, "tiles_m": tiles_m, "tiles_n": tiles_n}
    launch(order_kernel, (len(out),), arguments, GROUP=group, TILE=grouped_tile)
    return [(m, n) for m, n in out.tolist()]


def draw(grouped_tile: Any) -> Any:
    """The first wave of nine programs on 9 × 9 tiles, without and with groups of three."""
    from yaie.course.viz.tile_order import draw_waves, record_waves

    orders = {"row by row": row_major(9, 9), "groups of 3": order_of(grouped_tile, 9, 9, 3)}
    return draw_waves(record_waves(orders, 9, 9, together=9)[1])
