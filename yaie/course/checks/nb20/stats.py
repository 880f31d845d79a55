"""The check of 20.1: maximum and sum of a row in one pass, merged across a thread block."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    dtypes,
    element_of,
    on_every_schedule,
    race_in_words,
    report_of,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

# rows, columns, thread blocks, threads of each
CASES = (
    *((1, 32, 1, 32), (1, 128, 1, 32), (1, 64, 1, 64), (2, 90, 1, 64), (5, 70, 2, 96)),
    *((1, 3, 1, 64), (3, 1025, 2, 160), (1, 1100, 1, 1024), (0, 8, 1, 32)),
)
TOLERANCE = 1e-5


def check_stats(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for case in CASES:
            run(path, *case, order, explain)

    on_every_schedule(values)
    far_from_zero(path, explain)
    hidden_rows(path, explain)
    for suffix in dtypes():
        run(path, 2, 5000, 2, 64, "forward", explain, suffix)
    reads_once(path)


def inputs(rows: int, columns: int, suffix: str) -> tuple[Any, Any, Any]:
    import torch

    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns)) * 2
    return x.to(dtypes()[suffix]), poisoned(rows), poisoned(rows)


def run(
    path: Path,
    rows: int,
    columns: int,
    blocks: int,
    threads: int,
    order: str,
    explain: Explain,
    suffix: str = "f32",
) -> None:
    x, best, total = inputs(rows, columns, suffix)
    words = f"{rows} × {columns} of {suffix}, {blocks} thread block{'s' * (blocks > 1)}"
    with given(f"{words} of {threads} threads, in {order} order"):
        launch(
            path, f"softmax_stats_{suffix}", x, best, total, rows, columns, blocks, threads,
            explain=explain, order=order, checked=columns < 2000,
        )  # fmt: skip
        compare(x, best, total, threads)


def compare(x: Any, best: Any, total: Any, threads: int) -> None:
    import torch

    if not x.numel():
        return
    wide = x.double()
    highest = wide.amax(1)
    owner = torch.arange(x.shape[1]) % threads
    whole = max(x.shape[1] // 32 * 32, 1)
    unwritten = "NaN was there before: nobody wrote it." if best.isnan().any() else ""
    equal(
        best, highest.float(), "best", because=unwritten,
        mistakes=[
            (of(wide, owner < 32)[0].float(), "That is the maximum of warp 0's columns: the other "
             "warps' have to come to it, through of_warp."),
            (of(wide, owner == 0)[0].float(), "That is the maximum of thread 0's columns."),
            (wide[:, :whole].amax(1).float(), f"The columns after {whole}, the last that fill a "
             "whole warp, are missing."),
        ],
    )  # fmt: skip
    parts = [of(wide, owner == t) for t in range(min(threads, x.shape[1]))]
    running = torch.stack([old_not_rescaled(wide[:, owner == t]) for t in range(len(parts))])
    tops = torch.stack([part[0] for part in parts])
    merged = (running * (tops - highest).exp()).sum(0)
    close(
        total, wanted(wide).float(), "total", because=unwritten or of_dtype(x), rtol=TOLERANCE,
        mistakes=[
            (wide.exp().sum(1).float(), "That is Σ exp(x): the maximum was not subtracted."),
            (sum(part[1] for part in parts).float(), "The threads' sums were added as they are, "
             "but each is relative to its own thread's maximum: bring them to a common one first."),
            (merged.float(), "A thread's sum was not rescaled when it found a larger maximum: what "
             "it had added until then is relative to the old one."),
            (wanted(wide[:, :whole], highest).float(), f"The columns after {whole}, the last that "
             "fill a whole warp, are missing from the sum. A lane without a column takes part "
             "with nothing in its sum."),
            (wanted(wide[:, owner < 32], highest).float(), "That is the sum of warp 0's columns: "
             "the other warps' have to come to it, through of_warp."),
            (of(wide, owner == 0)[1].float(), "That is the sum of thread 0's columns."),
        ],
    )  # fmt: skip


def of_dtype(x: Any) -> str:
    """What to tell of a row of 16-bit numbers, when those of float32 were right before."""
    if x.dtype.itemsize == 4:
        return ""
    return (
        "In float32 it was right. A sum kept in 16 bits has 8 or 11 of them for itself, and small "
        "terms are rounded away: keep it in a float."
    )


def of(wide: Any, mask: Any) -> tuple[Any, Any]:
    """Maximum and sum, relative to it, of some columns."""
    part = wide[:, mask]
    return part.amax(1), wanted(part)


def wanted(wide: Any, highest: Any = None) -> Any:
    highest = wide.amax(1) if highest is None else highest
    return (wide - highest.unsqueeze(1)).exp().sum(1)


def old_not_rescaled(columns: Any) -> Any:
    """The sum of a thread that adds exp(x - maximum so far) and never looks back."""
    import torch

    return (columns - torch.cummax(columns, 1).values).exp().sum(1)


def far_from_zero(path: Path, explain: Explain) -> None:
    """Rows whose exp overflows, or vanishes, without the maximum."""
    import torch

    x = torch.tensor([[1000.0, 999.0] * 40, [-1000.0, -1001.0] * 40])
    best, total = poisoned(2), poisoned(2)
    with given("rows near 1000 and near -1000"):
        launch(path, "softmax_stats_f32", x, best, total, 2, 80, 1, 64, explain=explain)
        because = "exp(1000) is infinite and exp(-1000) is 0: subtract the maximum first."
        close(total, wanted(x.double()).float(), "total", because=because, rtol=TOLERANCE)


def hidden_rows(path: Path, explain: Explain) -> None:
    """-inf is what a filter leaves: whole rows, and rows that begin with it."""
    import torch

    x = torch.full((2, 100), -torch.inf)
    x[1, 70:] = 1.5
    best, total = poisoned(2), poisoned(2)
    with given("a row of -inf alone, and one with 30 numbers at its end"):
        launch(path, "softmax_stats_f32", x, best, total, 2, 100, 2, 64, explain=explain)
        because = (
            "-inf minus -inf is NaN. rescale(total, from, to) gives 0 where `from` is -inf: use it "
            "wherever a sum, or a single term, is brought to another maximum."
        )
        equal(best, torch.tensor([-torch.inf, 1.5]), "best", because=because)
        close(total, torch.tensor([0.0, 30.0]), "total", because=because)


def reads_once(path: Path) -> None:
    """Every element must be loaded once."""
    rows, columns = 2, 512
    x, best, total = inputs(rows, columns, "f32")
    report = report_of(path, "softmax_stats_f32", x, best, total, rows, columns, 2, 128)
    sectors = sum(a.units for a in report.accesses if (a.memory, a.name) == ("global", "x"))
    needed = rows * columns * 4 // 32
    if sectors > needed:
        fail(
            f"The result is right, but {sectors} sectors of x were loaded where {needed} hold all "
            "of it. Maximum and sum come from one pass, with neighboring columns in neighboring "
            "threads."
        )


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        words = race_in_words(found, element_of(found, path, {}, 8))
        if found.memory == "global":
            return "Several threads write the same result: one is enough, once all have merged."
        if found.access == found.other_access == "store":
            return f"{words} One lane of each warp writes, into a place of its warp's own."
        return f"{words} of_warp may be read when every warp has written its pair."

    return {
        "race": race,
        "inactive_lane": "All 32 lanes come to a shuffle: one without a column brings -inf and 0.",
        "deadlock": "A shuffle waits for all lanes in its mask: keep it out of every `if`.",
        "divergent_barrier": "Every thread comes to every __syncthreads(), with a column or not.",
        "uninitialized": "Only as many places of of_warp are written as there are warps.",
        "out_of_bounds": "A row has `columns` elements, the last one at columns - 1.",
    }


def draw_stats(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    x, best, total = inputs(4, 512, "f32")
    return draw_costs(report_of(path, "softmax_stats_f32", x, best, total, 4, 512, 2, 128))
