"""Exercises of notebook 15: a tile in shared memory, a tile in registers, a swizzle."""

from __future__ import annotations

from yaie.course.checks.nb15.register_tile import check_register_tile, draw_register_tile
from yaie.course.checks.nb15.shared_tile import check_shared_tile, draw_shared_tile
from yaie.course.checks.nb15.swizzle import check_swizzle, draw_swizzle
from yaie.course.core.manifest import Exercise

NOTEBOOK = "15_tiled_matmul"

EXERCISES = [
    Exercise(
        id="15.1",
        notebook=NOTEBOOK,
        slug="shared_tile",
        title="A tile of c through tiles of a and b",
        target="csrc/matmul/shared_tile.cu#matmul_shared_tile",
        task=(
            "A thread block of 32 × 32 threads computes a tile of 32 × 32 elements of c = a b; the "
            "thread's own is in `row` and `column`. Walk along k in turns of 32: bring a tile of a "
            "to a_tile and a tile of b to b_tile, an element of each a thread, wait, add 32 "
            "products to the thread's sum, wait, go on. Then write the sum to c, rounded by "
            "`from_float<T>`. m, n and k are any numbers: beyond the edges of a and b there are "
            "zeros."
        ),
        difficulty=2,
        minutes=25,
        hints=(
            "In the turn that begins at `start`, the tile of a has the rows of this thread block "
            "and the columns start … start + 31; the tile of b has the rows start … start + 31 and "
            "the columns of this thread block. Thread (x, y) brings the elements at row y, column "
            "x of both. Then it needs row y of one tile and column x of the other.",
            "The bounds differ: for a they are row < m and start + x < k, for b start + y < k and "
            "column < n. Who is out of bounds writes a 0 and stays, since others wait for it at "
            "the barriers. There are two in a turn: nobody reads a tile that is not complete, and "
            "nobody overwrites one that is still read. Only the last line asks whether the thread "
            "has an element of c.",
            "    float sum = 0.0f;\n"
            "    for (int start = 0; start < k; start += TILE) {\n"
            "        a_tile[y][x] = ... ? to_float(a[(size_t)row * k + ...]) : 0.0f;\n"
            "        b_tile[y][x] = ... ? to_float(b[(size_t)(...) * n + column]) : 0.0f;\n"
            "        // a barrier\n"
            "        for (int i = 0; i < TILE; ++i) sum += ...;\n"
            "        // a barrier\n"
            "    }\n"
            "    if (...) c[...] = from_float<T>(sum);",
        ),
        proves=(
            "It is right for 7 shapes in three schedules and three dtypes, no thread reads or "
            "overwrites a tile too early, and global memory is asked once for each element of a "
            "tile."
        ),
        check=check_shared_tile,
        picture=draw_shared_tile,
    ),
    Exercise(
        id="15.2",
        notebook=NOTEBOOK,
        slug="register_tile",
        title="64 sums in a thread's registers",
        target="csrc/matmul/register_tile.cu#matmul_register_tile",
        task=(
            "The tiles of a and b have been written: a_tile[step] is a column of a, 128 elements "
            "long, and b_tile[step] a row of b. In each of the DEPTH steps a thread takes eight "
            "elements of a_tile, four from y and four from HALF + y, and eight of b_tile, four "
            "from x and four from HALF + x, by load16, and adds all 64 products to "
            "`sums[down][across][i][j]`: `down` and `i` say which of a's, `across` and `j` which "
            "of b's. Place both barriers, too: this is in the middle of the loop over k."
        ),
        difficulty=3,
        minutes=25,
        hints=(
            "One step is an outer product: a column of 8 times a row of 8. What a thread has "
            "brought to registers is used 8 times before the next step.",
            "`Vec<float>` holds four floats in registers, and load16(&a_tile[step][y]) fills one. "
            "A step has four of these loads and then only registers. Before the first step all "
            "threads must have written the tiles; after the last, all must have read them before "
            "the next turn writes.",
            "    // a barrier\n"
            "    for (int step = 0; step < DEPTH; ++step) {\n"
            "        Vec<float> of_a[2] = {load16(&a_tile[step][y]), load16(&a_tile[step][...])};\n"
            "        Vec<float> of_b[2] = ...;\n"
            "        // four loops: down, across, i, j\n"
            "        sums[down][across][i][j] += of_a[...][...] * of_b[...][...];\n"
            "    }\n"
            "    // a barrier",
        ),
        proves=(
            "It is right for 5 shapes, in three schedules and three dtypes, and a step costs a "
            "warp 4 requests to shared memory for 2,048 multiplications."
        ),
        check=check_register_tile,
        picture=draw_register_tile,
    ),
    Exercise(
        id="15.3",
        notebook=NOTEBOOK,
        slug="swizzle",
        title="An order of pieces in which no two lanes meet",
        target="csrc/matmul/mma.cu#swizzle",
        task=(
            "A tile in shared memory has rows of PIECES pieces of 16 bytes (PIECES is 4, 8, 16 or "
            "32). Set `place` to where piece `piece` of row `row` lies, counted in pieces from the "
            "beginning of the tile. Each row keeps to its own places, row * PIECES … row * PIECES "
            "+ PIECES - 1, but changes their order, so that one and the same piece of 8 rows that "
            "follow one another (from row 0, 8, 16, …) lies in 8 different groups of four banks."
        ),
        difficulty=2,
        minutes=20,
        hints=(
            "Places p and q are in the same banks if p % 8 == q % 8, since 8 pieces of 16 bytes "
            "fill the 32 banks. Without a change of order, piece 0 of row r is at r * PIECES: with "
            "8 pieces always in banks 0 to 3.",
            "piece ^ something below PIECES (the bitwise exclusive or) is a change of order: "
            "different pieces get different places, and two rows with a different something put a "
            "piece in different places. With 8 or more pieces a row, 8 rows need 8 different "
            "numbers, 0 to 7. With 4 pieces two rows share the 128 bytes of all banks: only every "
            "second row begins in the same bank, and 4 numbers, 0 to 3, are enough.",
            "    place = row * PIECES + (piece ^ ...);\n"
            "with row % 8 for 8 pieces or more, and for 4 pieces a number that is the same for "
            "rows 0 and 1, another for rows 2 and 3, and so on, always below 4. `constexpr int` "
            "and `PIECES < 8 ? ... : ...` write both in one line.",
        ),
        proves=(
            "Every piece has a place of its own in its row, and the tensor-core kernel that uses "
            "them moves every piece without a bank conflict, and multiplies right."
        ),
        check=check_swizzle,
        picture=draw_swizzle,
    ),
]
