"""21.1: maximum and sum of a row in one pass, merged across a thread block."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb21.rows import MERGE
from yaie.course.exercises.nb21.sample import operator_by

fit = operator_by("softmax_stats")
# Rows, columns, thread blocks, threads of each.
SHAPES = (
    *((1, 32, 1, 32), (1, 128, 1, 32), (1, 64, 1, 64), (2, 90, 1, 64), (5, 70, 2, 96)),
    *((1, 3, 1, 64), (3, 1025, 2, 160), (1, 1100, 1, 1024), (0, 8, 1, 32)),
)
BECAUSE = "total is the sum of exp(x - best) over the row."
FAR = f"{BECAUSE} exp(1000) is infinite and exp(-1000) is 0, so the maximum comes off first."
HIDDEN = f"{BECAUSE} A column of -inf adds 0 to it."
HALF = f"{BECAUSE} A sum of 16 bits rounds small terms away."


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(case(*shape) for shape in SHAPES))
    far = "rows near 1000 and near -1000"
    yield case(2, 80, 1, 64, name=far, make=far_from_zero, because=FAR)
    hidden = "a row of -inf alone, and one with 30 numbers at its end"
    yield case(2, 100, 2, 64, name=hidden, make=partly_hidden, because=HIDDEN)
    for suffix, because in (("f32", BECAUSE), ("f16", HALF), ("bf16", HALF)):
        yield case(2, 5000, 2, 64, suffix, because=because, how={"checked": False})
    yield case(2, 512, 2, 128, costs=True)


def case(
    rows: int, columns: int, blocks: int, threads: int, suffix: str = "f32", **data: Any
) -> KernelCase:
    words = f"{rows} × {columns} of {suffix}, {blocks} thread block{'s' * (blocks > 1)}"
    usual = {"name": f"{words} of {threads} threads", "make": normal, "because": BECAUSE}
    return KernelCase(**{**usual, **data}, shape=(rows, columns, blocks, threads), suffix=suffix)


def normal(rows: int, columns: int) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns)) * 2


def far_from_zero(rows: int, columns: int) -> Any:
    """Rows whose exp overflows, or vanishes, without the maximum."""
    return torch.tensor([[1000.0, 999.0] * 40, [-1000.0, -1001.0] * 40])


def partly_hidden(rows: int, columns: int) -> Any:
    """-inf is what a filter leaves: whole rows, and rows that begin with it."""
    x = torch.full((2, 100), -torch.inf)
    x[1, 70:] = 1.5
    return x


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, columns, *_ = case.shape
    x = case.make(rows, columns).to(cuda.dtype_of(case.suffix))
    best, total = cuda.poisoned(rows), cuda.poisoned(rows)
    name = f"softmax_stats_{case.suffix}"
    report = cuda.run(see, path, name, x, best, total, *case.shape, explain=MERGE, **case.how)
    wide = x.double()
    highest = wide.amax(1)
    maximum = cuda.unwritten(best, "It is the maximum of the row.")
    see.equal("best", best, highest.float(), maximum)
    terms = torch.where(wide == -torch.inf, 0.0, (wide - highest.unsqueeze(1)).exp())
    see.close("total", total, terms.sum(1).float(), cuda.unwritten(total, case.because), rtol=1e-5)
    if case.costs:
        sectors = sum(access.units for access in cuda.accesses(report, name="x", memory="global"))
        once = (
            "Maximum and sum come from one pass, with neighboring columns in neighboring threads."
        )
        see.at_most("the number of sectors of x that were loaded", sectors, x.nbytes // 32, once)


def draw(path: Path) -> Any:
    """What each line costs."""
    x, best, total = normal(4, 512), cuda.poisoned(4), cuda.poisoned(4)
    return cuda.draw_lines(path, "softmax_stats_f32", x, best, total, 4, 512, 2, 128)
