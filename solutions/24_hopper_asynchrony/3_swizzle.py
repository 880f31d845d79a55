"""Solution of exercise 24.3: The swizzle as an exclusive or of bits.

TMA writes a box to shared memory row by row, but changes the order of 16-byte chunks. A row has
`span` bytes: 16, 32, 64 or 128. Return where byte `byte` of the box lies, counted from where the
box begins. Within each row, the number of a chunk is xored with the number of the 128-byte line
of shared memory in which the row lies, modulo the chunks of a row.

Generated from swizzle in yaie/course/lessons/asynchrony.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations


def swizzle(byte: int, span: int) -> int:
    """Where TMA puts a byte of a box in shared memory, counted from where the box begins.

    Args:
        byte: its number in the box, whose rows of `span` bytes follow each other.
        span: the bytes of a row, within which 16-byte chunks change places: 16 (none does), 32, 64
            or 128.
    """
    return byte ^ byte // 128 % (span // 16) * 16
