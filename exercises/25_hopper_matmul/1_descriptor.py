"""Exercise 25.1: The 64 bits that describe a matrix.

A wgmma gets no pointer to its matrices, but a descriptor of each. Write the function that packs
one, and the function that says which two a wgmma takes in each of the four steps of 16 along k.
The tile of a has 64 lines, one per row, each with 64 values of k. The tile of b has parts of 64
columns one after another; a part has 64 lines, one per value of k, each with 64 columns. A line
is 128 bytes, and its chunks are permuted within all of it.

You have
- `address`, `leading_bytes`, `stride_bytes`: ints, multiples of 16; of each a field has the 14
  bits from bit 4 on
- `MODES[span]`: an int from 0 to 3, for a span of 128, 64, 32 or 0 bytes: what bits 62 and 63
  hold
- `a_tile`, `b_tile`, `step`: ints: the addresses of the two tiles, and which 16 of the 64 values
  of k
- `LINE_BYTES`, `PATTERN_BYTES`: 128, the bytes of a line; 1,024, the bytes of 8 lines
- `TILE_K`, `STEP_K`: 64, the values of k in a tile; 16, those of a step
- `a << n`, `a >> n`, `a & 0x3FFF`: shift to higher or to lower bits, keep the lowest 14 bits

In a terminal: yaie check 25.1, yaie hint 25.1, yaie reset 25.1.
"""

from __future__ import annotations

from yaie.course.lessons.descriptor import LINE_BYTES, MODES, PATTERN_BYTES, STEP_K, TILE_K


def matrix_descriptor(address: int, leading_bytes: int, stride_bytes: int, span: int) -> int:
    """The 64 bits that tell wgmma where a matrix lies in shared memory.

    Args:
        address: of its first byte in shared memory, a multiple of 16.
        leading_bytes: from one part of the matrix to the next along a line, a multiple of 16.
        stride_bytes: from 8 lines to the next 8, a multiple of 16.
        span: bytes within which the 16-byte chunks of a line are permuted: 128, 64, 32; or 0.

    Returns:
        Bits 0 to 13: the address / 16. Bits 16 to 29: the leading bytes / 16. Bits 32 to 45: the
        stride bytes / 16. Of these, only what fits into 14 bits. Bits 62 and 63: the mode of `span`
        in `MODES`. All other bits are 0.
    """
    raise NotImplementedError("Exercise 25.1: The 64 bits that describe a matrix")


def step_descriptors(a_tile: int, b_tile: int, step: int) -> tuple[int, int]:
    """The descriptors of the 16 values of k that wgmma number `step` multiplies.

    Args:
        a_tile: the address of 64 lines, one per row of a: 64 values of k each (K-major).
        b_tile: the address of the tile of b, parts of 64 columns one after another. A part has 64
            lines, one per value of k: 64 columns each (MN-major).
        step: 0 to 3.

    Returns:
        The descriptor for a, whose leading bytes wgmma does not use (any value will do), and the
        one for b. Both have a span of 128.
    """
    raise NotImplementedError("Exercise 25.1: The 64 bits that describe a matrix")
