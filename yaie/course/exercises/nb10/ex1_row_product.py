"""10.1: the product of rows by vectors and threads: its numbers, its ranges, its loads."""

from collections.abc import Iterator
from pathlib import Path

import torch

from yaie.course.core import native
from yaie.course.core.compare import short
from yaie.course.core.cuda import poisoned, unwritten
from yaie.course.core.observe import Case, Observer

# rows, size, threads
SHAPES = (
    *((4, 64, 1), (1, 64, 1), (4, 70, 1), (3, 3, 1), (6, 37, 1), (5, 576, 1)),
    *((8, 64, 2), (10, 64, 3), (7, 19, 4), (3, 32, 7), (2, 0, 1), (13, 129, 5)),
    (27, 4, 49),  # 27 / 49 × 49 is less than 27 in floats of 32 and of 64 bits
)
VECTORS = "The check has LANES = 4: a row of 256 numbers takes 64 loads."
ONCE = "Each weight belongs to one product: load it once."
SHARED = "One load of x serves four rows: keep the vector, and multiply four rows by it."
ALL_ROWS = "The next range begins where one ends, the first at row 0, and the last ends at `rows`."


def cases() -> Iterator[Case]:
    for rows, size, threads in SHAPES:
        yield case(rows, size, threads)
    yield case(16, 256, 2, costs=True)


def case(rows: int, size: int, threads: int, costs: bool = False) -> Case:
    words = f"{rows} × {size}, {threads} thread{'s' * (threads > 1)}" + ", and its loads" * costs
    return Case(words, shape=(rows, size, threads), costs=costs)


def observe(path: Path, case: Case, see: Observer) -> None:
    rows, size, threads = case.shape
    ranges = poisoned(threads, 2, dtype=torch.int64)
    native.run(see, path, "row_shares", ranges, rows, threads)
    found = ranges.tolist()
    see.note("the ranges of the threads", found, _gaps(found, rows), ALL_ROWS)
    lengths = [last - first for first, last in found]
    even = "The slowest thread decides when all are done."
    see.at_most("the longest range minus the shortest", max(lengths) - min(lengths), 1, even)
    see.stop_if_wrong()
    generator = torch.Generator().manual_seed(size)
    weights, x = (torch.randn(*s, generator=generator) for s in ((rows, size), (size,)))
    out = poisoned(rows)
    traffic = native.run(see, path, "row_product", weights, x, out, rows, size, threads)
    whole = f"Each is Σ weights[r][k] × x[k] over {size} columns."
    want = (weights.double() @ x.double()).float()
    see.close("out", out, want, unwritten(out, whole), rtol=1e-4, atol=1e-4)
    if case.costs:
        see.at_most("bytes loaded of weights", traffic["weights"].loaded, weights.nbytes, ONCE)
        see.at_most("loads of weights", traffic["weights"].loads, rows * size // 4, VECTORS)
        see.at_most("bytes loaded of x", traffic["x"].loaded, rows // 4 * x.nbytes, SHARED)


def _gaps(found: list[list[int]], rows: int) -> str:
    """What is wrong with ranges that should follow each other from row 0 to the last."""
    at = 0
    for thread, (first, last) in enumerate(found):
        if first != at or last < first:
            return f"{short(found)}: thread {thread} begins at row {first}, expected {at}"
        at = last
    return "" if at == rows else f"{short(found)} end at row {at}, expected {rows}"
