"""What the exercises of notebook 14 share: random vectors, and what is seen of a kernel's sum."""

from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.observe import Observer
from yaie.emulator import Report

WARP = 32
CONFIGURATION = "cudaErrorInvalidConfiguration"
_EXPLAIN: cuda.Explain = {
    "race": "Every element belongs to one thread of the grid.",
    "out_of_bounds": "The elements end at n - 1, and so do those that a thread may touch.",
    CONFIGURATION: f"{cuda.EXPLAIN[CONFIGURATION]} Which of the two numbers is it here?",
}


def vector(n: int, seed: int = 0, dtype: Any = None) -> Any:
    """n random numbers, of which no two are equal in practice."""
    generator = torch.Generator().manual_seed(seed + n)
    return torch.randn(n, generator=generator).to(dtype or torch.float32)


def see_result(
    see: Observer, path: Path, name: str, x: Any, y: Any, want: Any, *more: int,
    out: Any = None, because: str = "", **options: Any,
) -> Report | None:  # fmt: skip
    """Run a launcher that adds into a poisoned output, and note every element of that.

    Returns the report of a checked run.
    """
    out = cuda.poisoned(x.numel(), dtype=x.dtype) if out is None else out
    explain = {**_EXPLAIN, **options.pop("explain", {})}
    report = cuda.run(see, path, name, x, y, out, x.numel(), *more, explain=explain, **options)
    see.picture(lambda: _draw(out, want))
    see.equal("out", out, want, because if want.isnan().any() else cuda.unwritten(out, because))
    if report is not None:
        see.picture(None)
        host = "The sum has to be computed by the kernel: host code cannot touch GPU memory."
        see.true("the kernel", cuda.requests(report, name="x", kind="load"), "never reads x", host)
        reads = cuda.requests(report, name="out", kind="load")
        see.equal("requests of warps to read out", reads, 0)
    return report


def see_grid(see: Observer, report: Report, n: int, per_thread: int = 1) -> None:
    """Note how many thread blocks were launched: those that cover n elements, and at most one more.

    Args:
        per_thread: how many elements a thread has.
    """
    see.stop_if_wrong()  # what is missing may be the launch
    thread_blocks, threads = report.grid_shape
    each = per_thread * threads
    covers = (
        f"A thread block covers {each:,} elements: n / {each:,} of them, rounded up, are enough."
    )
    see.at_most("the thread blocks of the launch", thread_blocks, -(-n // each) + 1, covers)


def _draw(out: Any, want: Any) -> Any:
    from yaie.course.viz import draw_written

    return draw_written(out, want, f"n = {len(want):,}")


def draw_loads(path: Path, name: str, n: int, size: int, dtype: Any = None) -> Any:
    """One request for x, `size` bytes per thread."""
    from yaie.course.viz.memory import draw_access

    x, y = vector(n, 1, dtype), vector(n, 2, dtype)
    report = cuda.report_of(path, name, x, y, cuda.poisoned(n, dtype=x.dtype), n)
    return draw_access(cuda.accesses(report, name="x", size=size)[0])
