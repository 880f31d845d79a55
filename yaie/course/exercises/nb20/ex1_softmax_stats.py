"""20.1: maximum and sum of a row in one pass, merged across a thread block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import draw_lines, in_every_order, poisoned, run
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb20.rows import MERGE, dtypes

# Rows, columns, thread blocks, threads of each.
SHAPES = (
    *((1, 32, 1, 32), (1, 128, 1, 32), (1, 64, 1, 64), (2, 90, 1, 64), (5, 70, 2, 96)),
    *((1, 3, 1, 64), (3, 1025, 2, 160), (1, 1100, 1, 1024), (0, 8, 1, 32)),
)
BECAUSE = "total is the sum of exp(x - best) over the row."
FAR = f"{BECAUSE} exp(1000) is infinite and exp(-1000) is 0, so the maximum comes off first."
HIDDEN = f"{BECAUSE} A column of -inf adds 0 to it."
HALF = f"{BECAUSE} A sum of 16 bits rounds small terms away."


def cases() -> Iterator[Case]:
    yield from in_every_order(*(case(*shape) for shape in SHAPES))
    far = case(2, 80, 1, 64, name="rows near 1000 and near -1000", make=far_from_zero)
    yield Case(**{**vars(far), "because": FAR})
    hidden = "a row of -inf alone, and one with 30 numbers at its end"
    yield Case(**{**vars(case(2, 100, 2, 64, name=hidden, make=partly_hidden)), "because": HIDDEN})
    for suffix in ("f32", "f16", "bf16"):
        wide = case(2, 5000, 2, 64, suffix, checked=False)
        yield Case(**{**vars(wide), "because": BECAUSE if suffix == "f32" else HALF})
    yield Case(**{**vars(case(2, 512, 2, 128)), "counted": True})


def case(
    rows: int, columns: int, blocks: int, threads: int, suffix: str = "f32", **data: Any
) -> Case:
    words = f"{rows} × {columns} of {suffix}, {blocks} thread block{'s' * (blocks > 1)}"
    standard = {
        "name": f"{words} of {threads} threads", "shape": (rows, columns, blocks, threads),
        "suffix": suffix, "order": "forward", "checked": True, "make": normal,
        "because": BECAUSE, "counted": False,
    }  # fmt: skip
    return Case(**{**standard, **data})


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


def observe(path: Path, case: Case, see: Observer) -> None:
    rows, columns, *_ = case.shape
    x = case.make(rows, columns).to(dtypes()[case.suffix])
    best, total = poisoned(rows), poisoned(rows)
    report = run(
        see, path, f"softmax_stats_{case.suffix}", x, best, total, *case.shape,
        explain=MERGE, order=case.order, checked=case.checked,
    )  # fmt: skip
    wide = x.double()
    highest = wide.amax(1)
    unwritten = " NaN was there before: it was not written." if best.isnan().any() else ""
    see.equal("best", best, highest.float(), f"It is the maximum of the row.{unwritten}")
    terms = torch.where(wide == -torch.inf, 0.0, (wide - highest.unsqueeze(1)).exp())
    see.close("total", total, terms.sum(1).float(), f"{case.because}{unwritten}", rtol=1e-5)
    if case.counted:
        found = [access for access in report.accesses if access.name == "x"]
        sectors = sum(access.units for access in found if access.memory == "global")
        once = (
            "Maximum and sum come from one pass, with neighboring columns in neighboring threads."
        )
        see.at_most("the number of sectors of x that were loaded", sectors, x.nbytes // 32, once)


def draw(path: Path) -> Any:
    """What each line costs."""
    x, best, total = normal(4, 512), poisoned(4), poisoned(4)
    return draw_lines(path, "softmax_stats_f32", x, best, total, 4, 512, 2, 128)
