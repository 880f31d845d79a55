"""24.3: every byte of boxes, row by row and chunk by chunk."""

from collections.abc import Callable, Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons import asynchrony

ROWS = {128: 20, 64: 40, 32: 72, 16: 64}  # of the box, more than a pattern has
WHERE = (
    "Row {row} has the bytes from {first} on, in line {line}; chunk {chunk} of {chunks} is xored "
    "with {line} % {chunks}."
)


def cases() -> Iterator[Case]:
    for span, rows in ROWS.items():
        yield Case(f"rows of {span} bytes", span=span, rows=rows)


def lies(row: int, chunk: int, span: int) -> int:
    """Where TMA puts a chunk of a row."""
    line = (row * span) // 128
    return row * span + 16 * (chunk ^ line % (span // 16))


def observe(swizzle: Callable[[int, int], int], case: Case, see: Observer) -> None:
    chunks = case.span // 16
    for row in range(case.rows):
        first = row * case.span
        for chunk in range(chunks):
            for within in (0, 1, 15):
                byte = first + 16 * chunk + within
                with see.call(f"swizzle({byte}, {case.span})"):
                    got = swizzle(byte, case.span)
                told = WHERE.format(
                    row=row, first=first, line=first // 128, chunk=chunk, chunks=chunks
                )
                want = lies(row, chunk, case.span) + within
                see.equal(f"swizzle({byte}, {case.span})", got, want, told)


def draw(swizzle: Callable[[int, int], int] = asynchrony.swizzle) -> Any:
    """Where the chunks of boxes lie in the banks, for rows of 64 and of 128 bytes."""
    from functools import partial

    from yaie.course.viz.film import compose
    from yaie.course.viz.matmul import draw_places

    def places(span: int) -> list[list[int]]:
        return [
            [swizzle(row * span + chunk * 16, span) // 16 for chunk in range(span // 16)]
            for row in range(1024 // span * 2)
        ]

    panels = [partial(draw_places, places(span)) for span in (64, 128)]
    return compose(panels, [("1", "rows of 64 bytes"), ("2", "rows of 128 bytes")])
