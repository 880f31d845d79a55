"""What a wgmma reads: the 64 bits that describe a matrix, and how they move along k.

The layout of the bits is that of PTX's "matrix descriptor" for `wgmma.mma_async`; the C++ function
of the same name in csrc/hopper.cuh computes them on the GPU. The tiles are those of
csrc/matmul/hopper/tiles.cuh: lines of 64 16-bit elements, 128 bytes, whose 16-byte chunks TMA has
permuted, 8 lines to a pattern of 1,024 bytes.
"""

from __future__ import annotations

# Bits 62 and 63, by the bytes within which chunks are permuted.
MODES = {0: 0, 128: 1, 64: 2, 32: 3}
LINE_BYTES = 128
PATTERN_BYTES = 8 * LINE_BYTES
TILE_K = 64  # values of k in a tile
STEP_K = 16  # values of k that one wgmma takes


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
    fields = (address, 0), (leading_bytes, 16), (stride_bytes, 32)
    bits = MODES[span] << 62
    for number, first in fields:
        bits |= (number >> 4 & 0x3FFF) << first
    return bits


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
    a = matrix_descriptor(a_tile + step * STEP_K * 2, 0, PATTERN_BYTES, LINE_BYTES)
    b = matrix_descriptor(
        b_tile + step * STEP_K * LINE_BYTES, TILE_K * LINE_BYTES, PATTERN_BYTES, LINE_BYTES
    )
    return a, b
