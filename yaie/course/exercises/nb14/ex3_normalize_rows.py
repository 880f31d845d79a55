"""14.3: shuffles with every lane in them, and a total that every thread knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import (
    ROUNDING,
    SUFFIXES,
    cheap,
    draw_lines,
    in_every_order,
    poisoned,
    run,
    unwritten,
)
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb14.rows import COSTS, MANY, far, on_grid, rows_of

# rows, columns, thread blocks, threads of each
SHAPES = (
    *((1, 32, 1, 32), (1, 64, 1, 64), (1, 90, 1, 64), (5, 70, 2, 64), (3, 33, 3, 96)),
    *((2, 1, 1, 32), (2, 1025, 2, 160), (2, 1100, 1, 1024), (0, 8, 1, 32)),
)
MASK = "The mask names the lanes that take part, one bit each, and all 32 do: 0xffffffff."
TOGETHER = "All lanes that the mask names have to come to the same shuffle."
EXPLAIN = {
    "race": "Wait before the warps' sums are read, and before the next row overwrites them.",
    "wrong_mask": MASK,
    "inactive_lane": lambda found: MASK if "not in the mask" in found.message else TOGETHER,
    "divergent_collective": TOGETHER,
    "deadlock": f"{TOGETHER} Does a shuffle stand in an `if`?",
}


def cases() -> Iterator[Case]:
    yield from in_every_order(*map(on_grid, SHAPES))
    for suffix in SUFFIXES.values():
        yield on_grid((3, 2000, 3, 256), suffix=suffix, words=", rounding")
    yield on_grid((4, 512, 2, 128), words=", and its costs", costs=True)
    words, last = ", of which the last one runs here", {"checked": False, "most_blocks": 1}
    yield on_grid((MANY, 1024, MANY, 32), words, "f16", is_far=True, order="reverse", how=last)


def observe(path: Path, case: Case, see: Observer) -> None:
    if hasattr(case, "is_far"):
        x, out = (far(case.rows, case.columns, case.suffix) for _ in range(2))
        if x is None or out is None:
            return
    else:
        x = rows_of(case.rows, case.columns, case.suffix)
        out = poisoned(case.rows, case.columns, dtype=x.dtype)
    report = run(
        see, path, f"normalize_rows_{case.suffix}", x, out,
        case.rows, case.columns, case.blocks, case.threads,
        explain=EXPLAIN, order=case.order, **case.how,
    )  # fmt: skip
    if hasattr(case, "is_far"):
        past = f"Row {case.rows - 1:,} begins at element 2³¹, beyond what an int can hold."
        see.equal("the last row", out[-1], x[-1] / case.columns, past)
        return
    want = (x.double() / x.double().sum(-1, keepdim=True)).to(x.dtype)
    because = f"Every thread divides its columns by the sum of all {case.columns:,}."
    see.close("out", out, want, unwritten(out, because), rtol=rounding(case.suffix))
    if case.costs:
        cheap(see, report, COSTS)
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        shuffles = re.search(r"__shfl\w*_sync|__reduce_add_sync|\.shfl", text)
        use = "Use __shfl_xor_sync or __shfl_down_sync for the sum over a warp."
        see.true("the kernel", shuffles, "never hands a register to another lane", use)


def rounding(suffix: str) -> float:
    return next(ROUNDING[name] for name in SUFFIXES if SUFFIXES[name] == suffix)


def draw(path: Path) -> Any:
    x, out = rows_of(4, 512), poisoned(4, 512)
    return draw_lines(path, "normalize_rows_f32", x, out, 4, 512, 2, 128)
