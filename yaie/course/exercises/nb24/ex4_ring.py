"""24.4: how far ahead boxes are asked for, then products of rows of few and of many boxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb24.boxes import NAME, matrix_of, see_product
from yaie.emulator import Module

SIZES = ((64, 512), (3, 776))  # 8 boxes; 13, of which the last is narrow
ONCE = ((65, 64), (2, 256))  # 1 and 4
STAGES, AHEAD = 4, 9
BECAUSE = "Each of the boxes 0, 1, … is added once, from the stage where it was copied."
EXPLAIN = {
    "pending_copy": "Read a stage when its phase of full is complete, and release it after that.",
    "uninitialized": "A stage holds a box when its phase of full is complete.",
    "transaction_bytes": "`ask` expects the bytes of one box in each phase of full.",
    "mbarrier": "A phase takes as many arrivals as mbarrier_init said.",
    "deadlock": "A phase needs the arrivals that mbarrier_init counts; wait for the use's parity.",
}


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(*(matrix_of(*size) for size in SIZES))
    for size in ONCE:
        yield matrix_of(*size)
    yield KernelCase(f"how far ahead boxes are asked for, of {AHEAD}", size=None)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size:
        see_product(see, path, case, EXPLAIN, BECAUSE)
        return
    ahead = asked_ahead(path)
    told = f"There are {STAGES} stages: as many boxes can be on their way before one is added."
    see.equal("boxes asked for before the first is added", ahead, STAGES, told)


def asked_ahead(path: Path) -> int:
    """How many boxes thread ROWS asks for before the first thread adds one."""
    source = path.read_text(encoding="utf-8")
    for begin in ("auto ask = [&](int box, int stage) {", "auto add = [&](int stage) {"):
        what = begin.split()[1]
        tell = f'if (threadIdx.x % ROWS == 0) printf("{what}\\n");'
        source = source.replace(begin, f"{begin} {tell}", 1)
    x, w = torch.zeros(64, AHEAD * 64).half(), torch.zeros(AHEAD * 64).half()
    with redirect_stdout(StringIO()) as told:
        getattr(Module(source, path, apart=True), f"{NAME}_f16")(x, w, torch.zeros(64), *x.shape)
    return told.getvalue().split().index("add")
