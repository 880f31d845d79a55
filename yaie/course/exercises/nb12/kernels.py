"""A kernel that asks the learner's function."""

from yaie.course.core.triton import tl, triton


@triton.jit
def order_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr, TILE: tl.constexpr):
    # Tiles in reverse order: the number of the program is that of another tile.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    row, column = TILE(tile, tiles_m, tiles_n, GROUP)
    # Both go into addresses, as in a real kernel: a fraction is an error there.
    tl.store(out_ptr + 2 * tile + 0 * row, row)
    tl.store(out_ptr + 2 * tile + 1 + 0 * column, column)
