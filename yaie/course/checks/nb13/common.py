"""What the checks of notebook 13 share: inputs, comparison, and the words for common mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.core.cuda import EXPLAIN, Explain, launch, poisoned
from yaie.course.core.expect import equal, fail, given

WARP = 32

CONFIGURATION = "cudaErrorInvalidConfiguration"
REFUSED = f"{EXPLAIN[CONFIGURATION]} Which of the two numbers between <<< and >>> is it here?"


def vector(n: int, seed: int = 0, dtype: Any = None) -> Any:
    """n random numbers, of which no two are equal in practice."""
    import torch

    generator = torch.Generator().manual_seed(seed + n)
    return torch.randn(n, generator=generator).to(dtype or torch.float32)


def add(
    path: Path, name: str, x: Any, y: Any, *more: int, what: str, explain: Explain,
    order: str = "forward", checked: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Run a launcher that adds; returns the output, poisoned before, and the report."""
    n = x.numel()
    out = poisoned(n, dtype=x.dtype)
    with given(what):
        report = launch(
            path, name, x, y, out, n, *more,
            explain={"race": told_race, CONFIGURATION: REFUSED, **explain},
            order=order, checked=checked,
        )  # fmt: skip
        if out.isnan().all() and not (x + y).isnan().all():
            say_why_nothing_came(path, name, x, y, more)
        if report is not None and not any(a.name == "x" for a in report.accesses):
            fail(
                "something is in out, but no thread has read x: is the sum computed by the "
                "launcher? That is host code, and on a GPU it must not touch these pointers."
            )
    return out, report


def say_why_nothing_came(path: Path, name: str, x: Any, y: Any, more: tuple[int, ...]) -> None:
    import torch

    out = torch.zeros_like(x)
    launch(path, name, x, y, out, x.numel(), *more, checked=False)
    if out.any():
        fail(
            "out is NaN everywhere. It was NaN before the launch, and your kernel adds to what "
            "was there: assign with =, not with +=."
        )
    fail("no thread wrote anything to out. Is the kernel launched, and does it store its sum?")


def compare(out: Any, want: Any, what: str, mistakes: Any = (), because: str = "") -> None:
    """Every element, exactly; the picture of a failure shows which are wrong."""
    from yaie.course.core.expect import CheckFailed

    try:
        with given(what):
            equal(out, want, "out", because=because, mistakes=mistakes)
    except CheckFailed as failed:
        failed.picture = lambda: draw(out, want, what)
        raise


def draw(out: Any, want: Any, what: str) -> Any:
    from yaie.course.viz import draw_written

    return draw_written(out, want, what)


def told_race(finding: Any) -> str:
    """Which part of the index is missing, if two threads write one element."""
    if finding.thread_block == finding.other_thread_block:
        return (
            "Two threads of one thread block take the same element. Does the index count "
            "threadIdx.x?"
        )
    if finding.thread == finding.other_thread:
        return (
            "Threads with the same number in two thread blocks take the same element: the index "
            "has to count the threads of all thread blocks before, blockIdx.x * blockDim.x."
        )
    return "Threads of two thread blocks take the same element. Each needs elements of its own."


def is_far_off(finding: Any) -> bool:
    """Whether an access is out of bounds so far that its offset says nothing."""
    return "outside every argument" in finding.message


def unwritten_tail(out: Any) -> int | None:
    """Where the elements begin that were never written, if they are the last ones."""
    missing = out.isnan()
    if not missing.any() or missing.all():
        return None
    first = int(missing.nonzero()[0])
    return first if bool(missing[first:].all()) else None
