"""15.3: shuffles with every lane in them, and a total that every thread knows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb15.rows import COSTS, FAR, far, far_row, on_grid, rows_of

# rows, columns, thread blocks, threads of each
SHAPES = (
    *((1, 32, 1, 32), (1, 64, 1, 64), (1, 90, 1, 64), (5, 70, 2, 64), (3, 33, 3, 96)),
    *((2, 1, 1, 32), (2, 1025, 2, 160), (2, 1100, 1, 1024), (0, 8, 1, 32)),
)
MASK = "The mask names the lanes that take part, one bit each, and all 32 do: 0xffffffff."
TOGETHER = "All lanes that the mask names have to come to the same shuffle."
EXPLAIN = {
    "race": "Wait before the warps' sums are read, and before the next row overwrites them.",
    "shuffle": f"{TOGETHER} Does a shuffle stand in an `if`?",
    "wrong_mask": MASK,
    "inactive_lane": lambda found: MASK if "not in the mask" in found.message else TOGETHER,
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*map(on_grid, SHAPES))
    for suffix in cuda.SUFFIXES.values():
        yield on_grid((3, 2000, 3, 256), ", rounding", suffix)
    yield on_grid((4, 512, 2, 128), ", and its costs", costs=True)
    yield far_row()


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, columns, *_ = case.shape
    x = case.make(rows, columns, case.suffix)
    is_far = case.make is far
    out = far(*x.shape, case.suffix) if is_far else cuda.poisoned(*x.shape, dtype=x.dtype)
    name = f"normalize_rows_{case.suffix}"
    report = cuda.run(see, path, name, x, out, *case.shape, explain=EXPLAIN, **case.how)
    if is_far:
        see.equal("the last row", out[-1], x[-1] / columns, FAR)
        return
    want = (x.double() / x.double().sum(-1, keepdim=True)).to(x.dtype)
    because = f"Every thread divides its columns by the sum of all {columns:,}."
    see.close("out", out, want, cuda.unwritten(out, because), rtol=cuda.rounding(case.suffix))
    if case.costs:
        cuda.cheap(see, report, COSTS)
        code = cuda.without_comments(path.read_text(encoding="utf-8"))
        shuffles = re.search(r"__shfl\w*_sync|__reduce_add_sync|\.shfl", code)
        use = "Use __shfl_xor_sync or __shfl_down_sync for the sum over a warp."
        see.true("the kernel", shuffles, "never hands a register to another lane", use)


def draw(path: Path) -> Any:
    x, out = rows_of(4, 512), cuda.poisoned(4, 512)
    return cuda.draw_lines(path, "normalize_rows_f32", x, out, 4, 512, 2, 128)
