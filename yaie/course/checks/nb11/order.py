"""The check of the grouped order: every tile once, and in groups of rows."""

from __future__ import annotations

from typing import Any

from yaie.course.core.expect import equal, fail, given

CASES = [
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

NUMBERS = "It returns two whole numbers, the row and the column; `//` divides without a rest."


def check_grouped_tile(grouped_tile: Any) -> None:
    for tiles_m, tiles_n, group in CASES:
        call = f"grouped_tile for {tiles_m} × {tiles_n} tiles, GROUP = {group}"
        with given(call, errors={TypeError: NUMBERS}):
            got = order_of(grouped_tile, tiles_m, tiles_n, group)
            compare(got, tiles_m, tiles_n, group)


def order_of(grouped_tile: Any, tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """The tile of every program, computed by a kernel that calls the learner's function."""
    import torch

    from yaie.course.checks.nb11.kernels import order_kernel
    from yaie.course.core.triton import plain_errors

    out = torch.full((tiles_m * tiles_n, 2), -1, dtype=torch.int32)
    with plain_errors():
        order_kernel[(len(out),)](out, tiles_m, tiles_n, GROUP=group, TILE=grouped_tile)
    return [(m, n) for m, n in out.tolist()]


def compare(got: list[tuple[int, int]], tiles_m: int, tiles_n: int, group: int) -> None:
    from yaie.course.lessons.tile_order import grouped

    want = grouped(tiles_m, tiles_n, group)
    if got == want:
        return
    for text, wrong in mistakes(tiles_m, tiles_n, group):
        if got == wrong and wrong != want:
            fail(f"the tiles come as {shown(got)}, expected {shown(want)}. {text}")
    if set(got) - set(want):
        outside = sorted(set(got) - set(want))[0]
        program = got.index(outside)
        fail(
            f"program {program} gets tile {outside}, and there are {tiles_m} rows and {tiles_n} "
            f"columns of tiles. {told_outside(outside, tiles_m)}"
        )
    if len(set(got)) < len(got):
        twice = next(tile for tile in got if got.count(tile) > 1)
        programs = [i for i, tile in enumerate(got) if tile == twice]
        missing = sorted(set(want) - set(got))[0]
        fail(f"programs {programs[0]} and {programs[1]} both get tile {twice}, and nobody gets "
             f"{missing}.")  # fmt: skip
    first = next(i for i, (x, y) in enumerate(zip(got, want, strict=True)) if x != y)
    equal(got[first], want[first], f"every tile comes once, but the tile of program {first}",
          because="Down the rows of a group first, then to the next column.")  # fmt: skip


def told_outside(tile: tuple[int, int], tiles_m: int) -> str:
    if tile[0] >= tiles_m:
        return "The last group may have fewer rows than GROUP: min(tiles_m - first row, GROUP)."
    return "A group has as many columns as there are: GROUP × tiles_n tiles in all."


def mistakes(tiles_m: int, tiles_n: int, group: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """Known wrong orders."""
    from yaie.course.lessons.tile_order import grouped, row_major

    swapped = [(m, n) for n, m in grouped(tiles_n, tiles_m, group)]
    groups_by_row = [
        (m, n)
        for first in range(0, tiles_m, group)
        for m in range(first, min(first + group, tiles_m))
        for n in range(tiles_n)
    ]
    inside_swapped = []
    for first in range(0, tiles_m, group):
        height = min(tiles_m - first, group)
        inside_swapped += [(first + i // height, i % height) for i in range(height * tiles_n)]
    return [
        ("Inside a group the row and the column are swapped.", inside_swapped),
        ("This is row after row: GROUP makes no difference.", row_major(tiles_m, tiles_n)),
        (
            "This is column after column, over all rows at once: GROUP makes no difference.",
            [(m, n) for n in range(tiles_n) for m in range(tiles_m)],
        ),
        ("Row and column are swapped.", [(n, m) for m, n in grouped(tiles_m, tiles_n, group)]),
        ("These are groups of columns. A group is GROUP rows of tiles.", swapped),
        ("Inside a group it goes row by row: go down its rows first.", groups_by_row),
    ]


def shown(order: list[tuple[int, int]]) -> str:
    words = ", ".join(map(str, order[:6]))
    return f"{words}{', …' * (len(order) > 6)}"


def draw_order(grouped_tile: Any) -> Any:
    """The first wave of nine programs on 9 × 9 tiles, without and with groups of three."""
    from yaie.course.lessons.tile_order import row_major
    from yaie.course.viz.tile_order import draw_waves, record_waves

    orders = {"row by row": row_major(9, 9), "groups of 3": order_of(grouped_tile, 9, 9, 3)}
    return draw_waves(record_waves(orders, 9, 9, together=9)[1])
