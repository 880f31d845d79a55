"""The check of the matrix product: every tile, every tail, and the sum in float32."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from yaie.course.checks.nb10.common import poisoned, randn, spaced, written_once
from yaie.course.core.expect import CheckFailed, close, fail, given

BLOCK = 16  # of all three axes, unless a case says otherwise


def check_matmul(kernel: Any) -> None:
    product_once(kernel, 48, 32, 32)
    product_once(kernel, 32, 32, 40)  # a tail of k
    product_once(kernel, 40, 24, 32)  # tiles that stick out
    product_once(kernel, 1, 1, 1)
    product_once(kernel, 7, 50, 33)
    product_once(kernel, 65, 33, 17, blocks=(32, 16, 16), group=2)
    product_once(kernel, 30, 70, 50, blocks=(16, 32, 64), group=8)
    in_half_precision(kernel)


def product_once(
    kernel: Any, m: int, n: int, k: int, blocks: tuple[int, int, int] = (BLOCK,) * 3, group: int = 2
) -> Any:
    from yaie.course.core.triton import refuse_strays

    a, b = randn(m, k, seed=1), randn(k, n, seed=2)
    c = poisoned(m, n)
    sizes = "m, n, k = " + ", ".join(map(str, (m, n, k)))
    call = f"{sizes}, blocks {' × '.join(map(str, blocks))}, GROUP = {group}"
    with given(call):
        trace = multiply(kernel, a, b, c, blocks, group)
        try:
            tiles(trace, m, n, blocks, group)
            refuse_strays(trace, lambda access: told_bound(access, m, n, k))
            compare(c, a, b, blocks[2])
        except CheckFailed:
            steps(trace, m, n, k, blocks)  # which may know better
            raise
        written_once(trace, "c")
    return trace


def multiply(kernel: Any, a: Any, b: Any, c: Any, blocks: tuple[int, int, int], group: int) -> Any:
    from yaie.course.core.triton import attempt

    (m, k), n = a.shape, b.shape[1]
    programs = -(-m // blocks[0]) * -(-n // blocks[1])
    arguments = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}
    named = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks, strict=True))
    return attempt(kernel, (programs,), arguments, **named, GROUP=group, PRECISION="ieee")


def steps(trace: Any, m: int, n: int, k: int, blocks: tuple[int, int, int]) -> None:
    """From row to row, and from turn to turn of the loop, addresses grow as they have to."""
    for name, width, letter in (("a", k, "k"), ("b", n, "n"), ("c", n, "n")):
        for access in trace.of(name):
            if min(m, n, k) > 1 and access.elements.ndim == 2:
                (first, *_), (below, *_) = access.elements[:2]
                if below > first and below - first != width:
                    fail(
                        f"in {name}, the row below is {below - first} elements on.\n"
                        f"    {access.text}\n"
                        f"A row of {name} has {letter} = {width} elements."
                    )
    ahead = {"a": ("BLOCK_K columns", blocks[2]), "b": ("BLOCK_K rows", blocks[2] * n)}
    for name, (words, step) in ahead.items() if k > blocks[2] else ():
        firsts = [int(x.elements.ravel()[0]) for x in trace.of(name, "load") if not any(x.program)]
        for before, now in pairwise(firsts):
            if now - before != step:
                moved = f"{now - before} elements" if now != before else "nowhere"
                fail(
                    f"from one turn of the loop to the next, program 0 moves {moved} in {name}. "
                    f"The next {words} of {name} begin {step} elements on."
                )


def tiles(trace: Any, m: int, n: int, blocks: tuple[int, int, int], group: int) -> None:
    """Each program stores the tile that grouped_tile gives it."""
    from yaie.course.lessons.tile_order import grouped, row_major

    tiles_m, tiles_n = -(-m // blocks[0]), -(-n // blocks[1])
    firsts = {x.program[0]: int(x.elements.ravel()[0]) for x in trace.of("c", "store")}
    if not firsts:
        fail("no program has stored anything in c.")

    def first_element(tile: tuple[int, int]) -> int:
        return tile[0] * blocks[0] * n + tile[1] * blocks[1]

    order = grouped(tiles_m, tiles_n, group)
    wrong = [p for p, first in firsts.items() if first != first_element(order[p])]
    if not wrong:
        return
    explained = ""
    plain = row_major(tiles_m, tiles_n)
    if all(first == first_element(plain[p]) for p, first in firsts.items()):
        explained = " The product is the same, but this is the order without groups."
    elif all(first == first_element(order[p][::-1]) for p, first in firsts.items()):
        explained = " Are row and column swapped? grouped_tile returns the row first."
    program = wrong[0]
    row, column = divmod(firsts[program], n)
    tile_m, tile_n = order[program]
    fail(
        f"program {program} stores from row {row}, column {column} of c on. Its tile is number "
        f"{tile_m} of the rows and {tile_n} of the columns, which begins at row "
        f"{tile_m * blocks[0]}, column {tile_n * blocks[1]}.{explained}"
    )


def told_bound(access: Any, m: int, n: int, k: int) -> str:
    if access.kind == "store":
        return "Tiles at the edge stick out of c: the store needs a mask, rows < m and columns < n."
    if access.name == "a":
        width, along = k, access.elements.shape[-1]
    else:
        width, along = n, access.elements.shape[0]
    one_line = access.stray.sum() < along * BLOCK
    if one_line and (k % along):
        return (
            f"{k} is no multiple of BLOCK_K = {along}: in the last turn only k - start steps "
            "of the tile exist. Mask the others, in a and in b, as 0, so that their products are 0."
        )
    which = "rows beyond m" if access.name == "a" else "columns beyond n"
    return (
        f"Tiles at the edge stick out: {which} do not exist ({access.name} has "
        f"{access.num_elements // width} rows of {width}). Mask them, or let them wrap around "
        "with %, since what they give is not stored."
    )


def compare(c: Any, a: Any, b: Any, block_k: int) -> None:
    want = a.double() @ b.double()
    k = a.shape[1]
    whole = k // block_k * block_k
    last = (k - 1) // block_k * block_k
    if bool(c.isnan().any()):
        missing = int(c.isnan().sum())
        fail(
            f"{missing} of {c.numel()} elements of c are NaN. A masked lane of a or b without "
            "`other=0.0` has any value, and takes part in the product."
        )
    wrong = [
        (
            a.double()[:, :whole] @ b.double()[:whole],
            f"The last {k - whole} of the {k} products are missing: the loop ends before the tail.",
        ),
        (
            a.double()[:, last:] @ b.double()[last:],
            "Only the last step along k is in c: add each product to the sum of those before.",
        ),
        (
            a.double()[:, :block_k] @ b.double()[:block_k],
            "Only the first step along k is in c.",
        ),
    ]
    close(
        c,
        want.float(),
        "c",
        because="Each element is the sum of k products, a row of a with a column of b.",
        mistakes=[(x.float(), text) for x, text in wrong if x.shape == want.shape],
        rtol=1e-4,
        atol=1e-4,
    )


def in_half_precision(kernel: Any) -> None:
    """2,048 products of positive numbers: a sum in float16 stops growing as it should."""
    import torch

    k = 2048
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.rand(shape, generator=generator).half() for shape in ((16, k), (k, 16)))
    c = poisoned(16, 16, dtype=torch.float16)
    want = (a.double() @ b.double()).half()
    with given(f"m, n, k = 16, 16, {k:,} in float16, blocks 16 × 16 × 16"):
        multiply(kernel, spaced(a), spaced(b), c, (BLOCK,) * 3, 1)
        close(
            c,
            want,
            "c",
            because=(
                "All cases in float32 are right, so it is the precision: numbers of the size of "
                "512 are 0.5 apart in float16, and every step of the loop rounds to that. Sum in "
                "float32, `tl.zeros(..., tl.float32)`, and round once, at the store."
            ),
            rtol=1e-3,
            atol=0.0,
        )


def draw_matmul(kernel: Any) -> Any:
    """Some steps of the programs of a small product."""
    from yaie.course.viz.film import film_strip
    from yaie.course.viz.tile_order import draw_product, record_product

    trace = product_once(kernel, 40, 56, 40)
    steps = record_product(trace, 40, 56, 40)
    titles = [f"step {number}" for number in range(len(steps))]
    return film_strip(steps, draw_product, titles, frames=[0, 2, len(steps) // 2])
