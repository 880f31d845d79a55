"""The check of 14.4: the formula, in float32 whatever the dtype, at sizes that fit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb14.common import (
    ROUNDING,
    SUFFIXES,
    dtypes,
    on_every_schedule,
    report_of,
    require_cheap,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, given

THREADS = 256
CASES = ((1, 256, 0.5), (3, 700, 0.5), (2, 1, 1e-6), (2, 33, 1e-6), (2, 1025, 1e-6), (0, 8, 1e-6))

COSTS = {
    "global load": "Neighboring threads should read neighboring columns.",
    "global store": "Neighboring threads should write neighboring columns.",
}
TOGETHER = (
    "block_sum has shuffles and barriers: all threads of the thread block call it, equally often, "
    "also those without a column."
)
EXPLAIN: Explain = {
    **dict.fromkeys(["divergent_barrier", "inactive_lane", "deadlock"], TOGETHER),
    "out_of_bounds": "A row has `size` columns, and some rows have fewer than there are threads.",
}
IN_HALF = (
    "The square of 200 is 40,000, and the sum of a few of them is more than float16 can hold "
    "(65,504): out becomes 0. Square and add in float."
)
ROUNDED = "Square and add in float, whatever T is, and round once, when the result is written."


def check_rms_norm(path: Path) -> None:
    def values(order: str) -> None:
        for rows, size, eps in CASES:
            run(path, rows, size, eps, order)

    on_every_schedule(values)
    for name, suffix in SUFFIXES.items():
        run(path, 2, 781, 1e-6, "forward", suffix, ROUNDING[name])
    large(path)
    many(path)
    x, weight, out = inputs(2, 1024, "f32")
    with given("2 × 1,024"):
        report = report_of(path, "rms_norm_simple_f32", x, weight, out, 2, 1024, 1e-6)
        require_cheap(report, COSTS)


def inputs(rows: int, size: int, suffix: str) -> tuple[Any, Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(size)
    dtype = dtypes()[suffix]
    x = torch.randn(rows, size, generator=generator) + 0.3
    weight = torch.rand(size, generator=generator) + 0.5
    return x.to(dtype), weight.to(dtype), poisoned(rows, size, dtype=dtype)


def run(
    path: Path,
    rows: int,
    size: int,
    eps: float,
    order: str,
    suffix: str = "f32",
    rtol: float = 1e-5,
) -> None:
    x, weight, out = inputs(rows, size, suffix)
    with given(f"{rows} × {size}, eps {eps:g}, {suffix}, threads in {order} order"):
        launch(
            path, f"rms_norm_simple_{suffix}", x, weight, out, rows, size, eps,
            explain=EXPLAIN, order=order,
        )  # fmt: skip
        compare(x, weight, eps, out, rtol)


def compare(x: Any, weight: Any, eps: float, out: Any, rtol: float) -> None:
    import torch

    wide, scaled = x.double(), weight.double()
    rows, size = x.shape
    squares = wide.square().sum(-1, keepdim=True)
    padded = -(-size // THREADS) * THREADS

    def normalized(mean: Any, extra: Any = eps, by: Any = scaled) -> Any:
        return (wide / torch.sqrt(mean + extra) * by).to(x.dtype)

    first = wide[:, :THREADS].square().sum(-1, keepdim=True)
    mistakes = [
        (normalized(wide.mean(-1, keepdim=True).square()), "That is divided by the mean of x, not "
         "by the root of the mean of its squares."),
        (normalized(wide.mean(-1, keepdim=True)), "The sum is of x, not of x squared."),
        ((wide / (torch.sqrt(squares / size) + eps) * scaled).to(x.dtype), "eps stands outside of "
         "the root: it is added to the mean of the squares, before the root is taken."),
        (normalized(squares / padded), f"The mean is taken over {padded}, the columns rounded up "
         f"to whole turns of {THREADS} threads. The row has {size}."),
        (normalized(squares / THREADS), f"The mean is taken over the {THREADS} threads. The row "
         f"has {size} columns."),
        (normalized(squares), "The sum of the squares is not divided by the number of columns."),
        (normalized(squares / size, 0.0), "eps is missing."),
        (normalized(squares / size, by=1.0), "The weight is missing."),
        (normalized(first / size), f"Only the first {THREADS} columns went into the sum."),
        ((wide * torch.sqrt(squares / size + eps) * scaled).to(x.dtype), "Divide by the root: "
         "rsqrtf(v) is 1 / sqrt(v), sqrtf(v) the root itself."),
    ] if rows else []  # fmt: skip
    because = ""
    if out.isnan().any():
        because = (
            f"NaN was there before: nobody wrote it. {size} columns are shared by {THREADS} "
            "threads, so a thread may have several, or none."
        )
    wanted = normalized(squares / size)
    close(out, wanted, "out", because=because, mistakes=mistakes, rtol=rtol, atol=rtol / 10)


def large(path: Path) -> None:
    """Squares whose sum no float16 can hold."""
    import torch

    x, weight, out = torch.full((1, 2048), 200.0).half(), torch.ones(2048).half(), None
    out = poisoned(1, 2048, dtype=torch.float16)
    with given("1 × 2,048 float16 numbers, all 200"):
        launch(
            path, "rms_norm_simple_f16", x, weight, out, 1, 2048, 1e-6,
            explain=EXPLAIN, checked=False,
        )  # fmt: skip
        close(out, torch.ones_like(out), "out", because=IN_HALF, rtol=2e-3)


def many(path: Path) -> None:
    """So many columns that a bfloat16 sum of their squares gets stuck."""
    import torch

    size = 256 * 600
    x, weight = torch.ones(1, size).bfloat16(), torch.ones(size).bfloat16()
    out = poisoned(1, size, dtype=torch.bfloat16)
    with given(f"1 × {size:,} bfloat16 numbers, all 1"):
        launch(
            path, "rms_norm_simple_bf16", x, weight, out, 1, size, 1e-6,
            explain=EXPLAIN, checked=False,
        )  # fmt: skip
        close(out, torch.ones_like(out), "out", because=ROUNDED, rtol=2e-2)


def draw_rms_norm(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    x, weight, out = inputs(2, 1024, "f32")
    report = report_of(path, "rms_norm_simple_f32", x, weight, out, 2, 1024, 1e-6)
    return draw_costs(report)
