"""24.2: what is asked for box by box, then products of rows inside x and at its edges."""

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb24.boxes import STAGES, event, matrix_of, see_product, told

SIZES = ((64, 64), (130, 72), (3, 328))
BYTES, BOX = 8192 + 128, 8192
BECAUSE = "Each thread multiplies its row by w, box by box; past the edges both are zeros."
EXPLAIN = {
    "pending_copy": "A box may be read when full[stage] has counted all of its bytes.",
    "uninitialized": "A box may be read when full[stage] has counted all of its bytes.",
    "transaction_bytes": "A phase expects as many bytes as both copies bring, zeros included.",
    "deadlock": "A phase of full[stage] needs one arrival and the bytes that it expects.",
    "cudaErrorInvalidValue": (
        "That is the driver's answer to a map that it refuses, and `error` before you set it: a "
        "row of a box has 128 bytes with SPAN_128, and sizes, stride and box count elements."
    ),
}
COPIES = """
#define FROM(to, array) int((const char*)(to) - (const char*)(array))
#define tma_load(to, which, barrier, ...) \\
    told_load(FROM(to, places), FROM(to, weights), int((barrier) - full), __VA_ARGS__)
__device__ inline void told_load(int place, int weight, int barrier, int x, int y = -1) {
    printf("told: load %d %d %d %d %d\\n", place, weight, barrier, x, y);
}
"""
FOLLOWED = (130, 328)  # rows and columns where the calls are followed: three thread blocks, 6 boxes


def cases() -> Iterator[KernelCase]:
    yield KernelCase("what is asked for in 6 boxes of each thread block", size=None)
    yield from in_every_order(*(matrix_of(*size) for size in SIZES))
    yield matrix_of(65, 200, "bf16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size:
        see_product(see, path, case, EXPLAIN, BECAUSE)
        return
    arrivals, expected, boxes, parts = [], [], [], []
    lines = told(path, COPIES, {}, *FOLLOWED)
    if not lines:  # nothing was launched: the next case tells why
        return
    for words in lines:
        if words[0] == "load":
            place, weight, barrier, x, y = map(int, words[1:])
            if y >= 0:
                boxes.append((in_units(place, BOX), barrier, x, y))
            else:
                parts.append((in_units(weight, 128), barrier, x))
        elif words[0] == "arrive" and (at := event(words)).barrier == "full":
            arrivals.append(at.stage)
            expected.append(at.number)
    blocks, count = -(-FOLLOWED[0] // 64), -(-FOLLOWED[1] // 64)
    stages = [box % STAGES for box in range(count)]
    see.equal(
        *("the list of stages at whose mbarrier `ask` arrives", arrivals, stages * blocks),
        "Each phase of full[stage] needs one arrival, and no other thread arrives there.",
    )
    see.equal(
        *("the list of bytes that the phases expect", expected, [BYTES] * count * blocks),
        "A box has 8,192 bytes and its part of w 128, at the edges too, where zeros arrive.",
    )
    see.equal(
        "the list of boxes, as (places, full, x, y)",
        boxes,
        [(stages[b], stages[b], b * 64, row * 64) for row in range(blocks) for b in range(count)],
        "x is the column and y the row of the box's first element, both counted in elements.",
    )
    see.equal(
        "the list of parts of w, as (weights, full, x)",
        parts,
        [(stages[b], stages[b], b * 64) for b in range(count)] * blocks,
        "x is the first of the part's elements: that of the box's first column.",
    )


def in_units(number: int, unit: int) -> float:
    """A number of bytes as a number of places, whole where it is."""
    return number // unit if number % unit == 0 else number / unit
