"""24.2: products of rows whose boxes lie inside x, at its edges, and in all orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb24.boxes import matrix_of, see_product

SIZES = ((64, 64), (130, 72), (3, 328))
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


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(*(matrix_of(*size) for size in SIZES))
    yield matrix_of(65, 200, "bf16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    see_product(see, path, case, EXPLAIN, BECAUSE)
