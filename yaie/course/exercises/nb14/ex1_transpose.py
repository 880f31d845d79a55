"""14.1: a transpose through shared memory: every edge, no race, no wasted sector or wavefront."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import (
    SUFFIXES,
    cheap,
    in_every_order,
    poisoned,
    report_of,
    reserved,
    run,
    unwritten,
)
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb14.rows import DTYPES

SIZES = ((32, 32), (64, 96), (40, 70), (70, 40), (1, 33), (33, 1), (31, 64))
COSTS = {
    "global load": "The 32 threads of a warp should read 32 neighbors of a row of `in`.",
    "global store": "The 32 threads of a warp should write 32 neighbors of a row of `out`.",
    "shared load": "The 32 words that a warp reads from the tile should lie in 32 banks.",
    "shared store": "The 32 words that a warp writes to the tile should lie in 32 banks.",
}
FAR = (65_536, 32_800)  # in a last tile of these rows and columns, indices are beyond 2³¹


def cases() -> Iterator[Case]:
    yield from in_every_order(*(matrix(*size) for size in SIZES))
    for suffix in SUFFIXES.values():
        yield matrix(1823, 781, suffix, checked=False)
    for suffix in SUFFIXES.values():
        yield matrix(64, 96, suffix, ", and its costs", costs=suffix != "bf16")
    last = {"checked": False, "most_blocks": 1}
    yield Case(f"the last tile of {FAR[0]:,} × {FAR[1]:,} elements", far=True, how=last)


def matrix(
    rows: int, columns: int, suffix: str = "f32", words: str = "", costs: bool = False, **how: Any
) -> Case:
    words = f"{rows:,} × {columns} elements of {suffix}{words}"
    size = {"rows": rows, "columns": columns}
    return Case(words, **size, suffix=suffix, costs=costs, order="forward", how=how)


def matrices(rows: int, columns: int, suffix: str) -> tuple[Any, Any]:
    dtype = getattr(torch, DTYPES[suffix])
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)
    return x, poisoned(columns, rows, dtype=dtype)


def observe(path: Path, case: Case, see: Observer) -> None:
    if hasattr(case, "far"):
        observe_far(path, case, see)
        return
    rows, columns = case.rows, case.columns
    x, out = matrices(rows, columns, case.suffix)
    report = run(
        see, path, f"transpose_{case.suffix}", x, out, rows, columns, order=case.order, **case.how
    )
    because = "Every element is written once: out[column][row] = in[row][column]."
    see.equal("out", out, x.t().contiguous(), unwritten(out, because))
    if case.costs:
        see.note("use of shared memory", any(a.memory == "shared" for a in report.accesses))
        cheap(see, report, COSTS)


def observe_far(path: Path, case: Case, see: Observer) -> None:
    """The thread block of the last tile alone; the rest of the matrix takes no memory."""
    rows, columns = FAR
    x, out = (reserved(rows * columns, torch.float16) for _ in range(2))
    if x is None or out is None:
        return
    tile = matrices(32, 32, "f16")[0]
    x.view(rows, columns)[-32:, -32:] = tile
    last = out.view(columns, rows)[-32:, -32:]
    last[:] = float("nan")
    run(see, path, "transpose_f16", x, out, rows, columns, order="reverse", **case.how)
    bits = "Its elements are beyond the first 2³¹, where an index of 32 bits overflows."
    see.equal("the last tile of out", last, tile.t(), unwritten(last, bits))


def draw(path: Path) -> Any:
    """What a warp reads from the tile, and what it writes to `out`."""
    from yaie.course.viz.film import compose
    from yaie.course.viz.memory import draw_access

    x, out = matrices(64, 96, "f32")
    report = report_of(path, "transpose_f32", x, out, 64, 96)
    chosen = [
        max((a for a in report.accesses if (a.memory, a.kind) == wanted), key=lambda a: a.requests)
        for wanted in (("shared", "load"), ("global", "store"))
    ]
    return compose([partial(draw_access, access) for access in chosen])
