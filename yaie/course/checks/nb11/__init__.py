"""Exercises of notebook 11: a matrix product in tiles, and the order of the tiles."""

from __future__ import annotations

from yaie.course.checks.nb11.order import check_grouped_tile, draw_order
from yaie.course.checks.nb11.product import check_matmul, draw_matmul
from yaie.course.core.manifest import Exercise

NOTEBOOK = "11_triton_matmul"

EXERCISES = [
    Exercise(
        id="11.1",
        notebook=NOTEBOOK,
        slug="matmul",
        title="A matrix product, tile by tile",
        target="yaie.ops.triton.matmul:matmul_kernel",
        task=(
            "Write the kernel. A program asks `grouped_tile`, which the file imports, for its tile "
            "of c, walks along k in steps of BLOCK_K with `tl.dot`, and stores the tile. The sizes "
            "are any numbers, so there are three tails: of m, of n and of k. Inputs and output may "
            "be float16; the sum is kept in float32. Give `tl.dot` the argument "
            "`input_precision=PRECISION`."
        ),
        difficulty=3,
        minutes=30,
        hints=(
            "Begin with the kernel of the notebook, which works where all sizes are multiples. "
            "What a lane beyond m or n computes is never stored, so it may be anything that can "
            "be loaded. What a lane beyond k holds is added to every element of the tile.",
            "At the turn of the loop that begins at `start`, column i of a's tile exists if "
            "i < k - start, and so does row i of b's. Both are 0 otherwise. Rows and columns "
            "beyond the edge are masked too, or wrap around: (rows % m), (columns % n).",
            "Set up once:\n"
            "    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), ..., GROUP)\n"
            "    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)\n"
            "    a_tile = a_ptr + (rows % m)[:, None] * k + inner[None, :]\n"
            "    b_tile = b_ptr + inner[:, None] * n + ...\n"
            "    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n"
            "In the loop over `start`:\n"
            "    a = tl.load(a_tile, mask=(...)[None, :], other=0.0)\n"
            "    total = tl.dot(a, b, total, input_precision=PRECISION)\n"
            "    a_tile += BLOCK_K\n"
            "    b_tile += BLOCK_K * ...\n"
            "After it, one store with a mask of rows and columns.",
        ),
        proves=(
            "Eight products, six of which fit no tile, match float64, float16 included, and each "
            "program stored its own tile and nothing else."
        ),
        check=check_matmul,
        picture=draw_matmul,
    ),
    Exercise(
        id="11.2",
        notebook=NOTEBOOK,
        slug="grouped_tile",
        title="An order of tiles that loads less",
        target="yaie.ops.triton.matmul:grouped_tile",
        task=(
            "From the number of a program to the row and the column of its tile. Tiles come in "
            "groups of GROUP rows of tiles. Inside a group: down its rows, then the next column. "
            "The last group may be lower. It is a function that kernels call, and `//`, `%` and "
            "`min` work as in Python."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "How many tiles has a whole group? Then division and remainder say which group a "
            "program is in, and which place it has there. Inside a group do the same once more.",
            "A group has GROUP × tiles_n tiles, and begins at row group × GROUP. Its height is "
            "GROUP, unless fewer rows are left. The place inside, divided by the height, is the "
            "column; the remainder is how far down.",
            "Five lines:\n"
            "    group = tile // (...)\n"
            "    first_m = ...\n"
            "    height = min(tiles_m - ..., GROUP)\n"
            "    within = tile % (...)\n"
            "    return first_m + within % ..., within // ...",
        ),
        proves=(
            "For eleven grids, with low last groups and groups higher than the grid, every tile "
            "comes once, in its place."
        ),
        check=check_grouped_tile,
        picture=draw_order,
    ),
]
