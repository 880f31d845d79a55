"""15.1: a transpose through shared memory: every edge, no race, no wasted sector or wavefront."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

SIZES = ((32, 32), (64, 96), (40, 70), (70, 40), (1, 33), (33, 1), (31, 64))
COSTS = {
    "global load": "The 32 threads of a warp should read 32 neighbors of a row of `in`.",
    "global store": "The 32 threads of a warp should write 32 neighbors of a row of `out`.",
    "shared load": "The 32 words that a warp reads from the tile should lie in 32 banks.",
    "shared store": "The 32 words that a warp writes to the tile should lie in 32 banks.",
}
FAR = (65_536, 32_800)  # in a last tile of these rows and columns, indices are beyond 2³¹


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(matrix(*size) for size in SIZES))
    for suffix in cuda.SUFFIXES.values():
        yield matrix(1823, 781, suffix, how={"checked": False})
    for suffix in cuda.SUFFIXES.values():
        yield matrix(64, 96, suffix, ", and its costs", costs=suffix != "bf16")
    last = {"checked": False, "most_blocks": 1, "order": "reverse"}
    yield KernelCase(f"the last tile of {FAR[0]:,} × {FAR[1]:,} elements", size=FAR, how=last)


def matrix(
    rows: int, columns: int, suffix: str = "f32", words: str = "", **data: Any
) -> KernelCase:
    words = f"{rows:,} × {columns} elements of {suffix}{words}"
    return KernelCase(words, size=(rows, columns), suffix=suffix, **data)


def matrices(rows: int, columns: int, suffix: str) -> tuple[Any, Any]:
    dtype = cuda.dtype_of(suffix)
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)
    return x, cuda.poisoned(columns, rows, dtype=dtype)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size == FAR:
        observe_far(path, case, see)
        return
    x, out = matrices(*case.size, case.suffix)
    report = cuda.run(see, path, f"transpose_{case.suffix}", x, out, *case.size, **case.how)
    because = "Every element is written once: out[column][row] = in[row][column]."
    see.equal("out", out, x.t().contiguous(), cuda.unwritten(out, because))
    if case.costs:
        see.note("use of shared memory", cuda.requests(report, memory="shared") > 0)
        cuda.cheap(see, report, COSTS)


def observe_far(path: Path, case: KernelCase, see: Observer) -> None:
    """The thread block of the last tile alone; the rest of the matrix takes no memory."""
    rows, columns = FAR
    x, out = (cuda.reserved(rows * columns, torch.float16) for _ in range(2))
    tile = matrices(32, 32, "f16")[0]
    x.view(rows, columns)[-32:, -32:] = tile
    last = out.view(columns, rows)[-32:, -32:]
    last[:] = float("nan")
    cuda.run(see, path, "transpose_f16", x, out, rows, columns, **case.how)
    bits = "Its elements are beyond the first 2³¹, where an index of 32 bits overflows."
    see.equal("the last tile of out", last, tile.t(), cuda.unwritten(last, bits))


def draw(path: Path) -> Any:
    """What a warp reads from the tile, and what it writes to `out`."""
    from yaie.course.viz.film import compose
    from yaie.course.viz.memory import draw_access

    x, out = matrices(64, 96, "f32")
    report = cuda.report_of(path, "transpose_f32", x, out, 64, 96)
    chosen = [
        max(cuda.accesses(report, memory=memory, kind=kind), key=lambda a: a.requests)
        for memory, kind in (("shared", "load"), ("global", "store"))
    ]
    return compose([partial(draw_access, access) for access in chosen])
