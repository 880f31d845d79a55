"""Which tiles of a and b the programs of a matrix product c = a b need, and what they load.

A program computes one tile of c, `[block_m, block_n]`. For it, it needs block_m rows of a, a strip
of all k columns, and block_n columns of b, a strip of all k rows. Programs that run together walk
along k together, so a strip that several of them need comes from memory once, and the others find
it in the L2 cache. What one wave of programs has loaded is not counted on by the next.
"""

from collections.abc import Sequence

Tile = tuple[int, int]  # row and column, counted in tiles


def row_major(tiles_m: int, tiles_n: int) -> list[Tile]:
    """The tiles row by row: the order of program numbers if nothing is done about it."""
    return [(m, n) for m in range(tiles_m) for n in range(tiles_n)]


def grouped(tiles_m: int, tiles_n: int, group: int) -> list[Tile]:
    """The tiles in groups of `group` rows, each group column by column."""
    return [
        (m, n)
        for first in range(0, tiles_m, group)
        for n in range(tiles_n)
        for m in range(first, min(first + group, tiles_m))
    ]


def waves(order: Sequence[Tile], together: int) -> list[Sequence[Tile]]:
    """The tiles that are computed together, one wave after the other."""
    if together < 1:
        raise ValueError(f"together must be at least 1, got {together}")
    return [order[start : start + together] for start in range(0, len(order), together)]


def strips(wave: Sequence[Tile]) -> tuple[int, int]:
    """How many different strips of a and of b a wave needs."""
    return len({m for m, _ in wave}), len({n for _, n in wave})


def loaded_bytes(
    order: Sequence[Tile], together: int, k: int, block_m: int, block_n: int, itemsize: int = 2
) -> int:
    """Bytes of a and b that come from memory if `together` programs run at a time."""
    needed = [strips(wave) for wave in waves(order, together)]
    rows = sum(of_a for of_a, _ in needed) * block_m
    columns = sum(of_b for _, of_b in needed) * block_n
    return (rows + columns) * k * itemsize


def asked_bytes(m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int = 2) -> int:
    """Bytes that all programs ask for, wherever they come from. m and n in whole tiles."""
    tiles_m, tiles_n = -(-m // block_m), -(-n // block_n)
    return tiles_m * tiles_n * (block_m + block_n) * k * itemsize
