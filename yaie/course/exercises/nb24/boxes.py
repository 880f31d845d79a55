"""What the exercises of notebook 24 share: a matrix times a vector, by boxes."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.core.printed import hear
from yaie.emulator import KernelError

NAME = "row_product"
STAGES = 4


def matrix_of(rows: int, columns: int, suffix: str = "f16") -> KernelCase:
    """A case of x [rows, columns] and w [columns]."""
    words = f"x is {rows} × {columns:,}, {suffix}"
    return KernelCase(words, size=(rows, columns), suffix=suffix)


def see_product(
    see: Observer, path: Path, case: KernelCase, explain: cuda.Explain, because: str
) -> None:
    """Multiply, and note every element of the product."""
    rows, columns = case.size
    generator = torch.Generator().manual_seed(rows + columns)
    dtype = cuda.dtype_of(case.suffix)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    w = torch.randn(columns, generator=generator).to(dtype)
    out = cuda.poisoned(rows)
    launcher = f"{NAME}_{case.suffix}"
    cuda.run(see, path, launcher, x, w, out, rows, columns, explain=explain, **case.how)
    want = (x.double() @ w.double()).float()
    see.close("out", out, want, cuda.unwritten(out, because), rtol=1e-4, atol=1e-3)


INCLUDE = '#include "hopper.cuh"\n'
TOLD = """
#include <cstdio>
#define TELL(what, barrier, number) \\
    printf("told: " what " %d %d %d %d\\n", (int)threadIdx.x, int((barrier) - full), \\
           int((barrier) - empty), (int)(number))
#define mbarrier_wait(barrier, parity) TELL("wait", barrier, parity)
#define mbarrier_try_wait(barrier, parity) (TELL("wait", barrier, parity), true)
#define mbarrier_init(barrier, arrivals) TELL("init", barrier, arrivals)
#define mbarrier_arrive(barrier) TELL("arrive", barrier, 0)
#define mbarrier_arrive_expect(barrier, bytes) TELL("arrive", barrier, bytes)
"""


@dataclass(frozen=True)
class Event:
    """What a thread does at an mbarrier, or another call.

    Attributes:
        what: "init", "wait", "arrive", or what else is told.
        barrier: "full" or "empty", and its stage.
        number: arrivals, a parity, or bytes that are expected.
    """

    what: str
    thread: int
    barrier: str
    stage: int
    number: int


def told(path: Path, more: str, edits: dict[str, str], rows: int, columns: int) -> list[list[str]]:
    """The words that a kernel prints whose mbarriers tell what they would do, and do nothing.

    So no thread waits, and each takes its whole way.

    Args:
        more: further definitions.
        edits: pieces of the source, and what follows each of them.
    """
    return told_really(path, {INCLUDE: TOLD + more, **edits}, rows, columns)


def told_really(path: Path, edits: dict[str, str], rows: int, columns: int) -> list[list[str]]:
    """The words that a kernel prints with these additions, for x [rows, columns]."""
    source = path.read_text(encoding="utf-8")
    for piece, addition in edits.items():
        source = source.replace(piece, piece + addition, 1)
    x, w = torch.zeros(rows, columns).half(), torch.zeros(columns).half()
    with hear() as lines, suppress(KernelError):  # a later case tells of it
        module = cuda.module_of(source, path)
        getattr(module, f"{NAME}_f16")(x, w, torch.zeros(rows), rows, columns)
    return lines


def event(words: list[str]) -> Event:
    """A line of `TELL`."""
    what, thread, in_full, in_empty, number = words[0], *map(int, words[1:])
    if 0 <= in_full < STAGES:
        return Event(what, thread, "full", in_full, number)
    return Event(what, thread, "empty", in_empty, number)
