"""The check of the kernel that the learner writes whole: silu of the gates, times the ups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.core.cuda import EXPLAIN, launch, poisoned
from yaie.course.core.expect import close, fail, given

WARP = 32
NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
# The error of one rounding, twice over.
TOLERANCE = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def check_silu(path: Path) -> None:
    run(path, 3, 40)
    for rows, size in ((1, 1), (5, 7), (2, 256), (33, 31), (4, 576)):
        run(path, rows, size)
    run(path, 2, 40, scale=60.0)
    for dtype in ("float16", "bfloat16"):
        run(path, 7, 33, dtype)
    run(path, 9, 100, order="reverse")
    neighbors(path)


def run(
    path: Path, rows: int, size: int, dtype: str = "float32", scale: float = 2.0,
    order: str = "forward",
) -> Any:  # fmt: skip
    """One launch, compared with the formula in float64; returns the report."""
    import torch

    new = torch.Generator().manual_seed(rows * 1000 + size)
    x = (scale * torch.randn(rows, 2 * size, generator=new)).to(getattr(torch, dtype))
    out = poisoned(rows, size, dtype=x.dtype)
    large = f", gates up to {x.abs().max().item():.0f}" if scale > 10 else ""
    with given(f"{rows} rows of {size} gates and {size} ups in {dtype}{large}"):
        report = launch(
            path, f"silu_and_mul_simple_{NAMES[dtype]}", x, out, rows, size, order=order,
            explain={
                "out_of_bounds": lambda found: told_bound(found, rows, size),
                "race": "Two threads write one element: each needs one of its own.",
                "cudaErrorInvalidConfiguration": told_refused(rows * size),
            },
        )  # fmt: skip
        why_nan(out, rows, size)
        want = silu_and_mul(x)
        rtol = TOLERANCE[dtype]
        close(out, want.to(x.dtype), "out", mistakes=mistakes(x), rtol=rtol, atol=rtol / 10)
    return report


def silu_and_mul(x: Any) -> Any:
    import torch

    gate, up = x.double().chunk(2, dim=1)
    return gate / (1.0 + torch.exp(-gate)) * up


def mistakes(x: Any) -> list[tuple[Any, str]]:
    """What wrong formulas give, and what to tell."""
    import torch

    gate, up = x.double().chunk(2, dim=1)
    first, second = x.double()[:, ::2], x.double()[:, 1::2]
    wrong = [
        (up * torch.sigmoid(up) * gate, "Gates come first in a row, ups after them; here the "
         "second half of the row went through silu."),
        (torch.sigmoid(gate) * up, "That is sigmoid(gate) × up: silu(g) is g × sigmoid(g)."),
        (gate * torch.sigmoid(gate), "That is silu(gate) alone: it is yet to be multiplied by up."),
        (gate / (1.0 + torch.exp(gate)) * up, "The sign in the exponent is lost: silu(g) is "
         "g / (1 + exp(-g))."),
        (first * torch.sigmoid(first) * second, "Gate and up were taken from neighboring columns. "
         "A row holds all its gates, then all its ups."),
    ]  # fmt: skip
    if x.shape[0] > 1:
        flat, count = x.double().flatten(), gate.numel()
        beside, behind = flat[gate.shape[1] :][:count], flat[count:].view_as(gate)
        g = flat[:count].view_as(gate)
        apart = (
            "The ups of a row follow its own gates, `size` elements behind them; here they were "
            "read behind the gates of all rows."
        )
        wrong += [
            (
                g * torch.sigmoid(g) * beside.view_as(gate),
                "Only the first row is right. A row of x has 2 × size elements, a row of out has "
                "size: element i of out is not beside element i of x.",
            ),
            (gate * torch.sigmoid(gate) * behind, apart),
            (g * torch.sigmoid(g) * behind, apart),
        ]
    return [(value.to(x.dtype), text) for value, text in wrong]


def why_nan(out: Any, rows: int, size: int) -> None:
    """Tell which elements nobody has written, or what made a NaN of numbers."""
    missing = out.isnan().flatten()
    if not missing.any():
        return
    if missing.all():
        fail("nothing was written to out. Is the kernel launched, and does it store its result?")
    first = int(missing.nonzero()[0])
    if bool(missing[first:].all()):
        fail(
            f"of the {rows * size} elements of out those from {first} on were not written: are "
            "there as many threads as elements? The division has to round up."
        )
    fail(
        f"out has a NaN in row {first // size}, column {first % size}. If it was written at all: "
        "exp of a large number is infinite, and inf / inf is NaN. g / (1 + exp(-g)) is at worst "
        "g / inf, which is 0."
    )


def told_refused(elements: int) -> str:
    return (
        f"{EXPLAIN['cudaErrorInvalidConfiguration']} out has {elements} elements here; divided by "
        "a larger number of threads, and not rounded up, that is a grid of 0."
    )


def told_bound(finding: Any, rows: int, size: int) -> str:
    return (
        f"x has {rows} rows of {2 * size}, out {rows} rows of {size}; the last thread block has "
        "threads for which there is no element."
    )


def neighbors(path: Path) -> None:
    """Reject a kernel whose warps jump about."""
    report = run(path, 64, 64)
    sectors = [a.per_request for a in report.accesses if a.name == "x"]
    if max(sectors) > 8:
        with given("64 rows of 64 gates and 64 ups in float32"):
            fail(
                f"the result is right, but a request of a warp for x touches {max(sectors):.0f} "
                "sectors of 32 bytes where 4 would do: neighboring threads should take neighboring "
                "columns of a row."
            )


def draw_silu(path: Path) -> Any:
    """The first request of a warp for x."""
    from yaie.course.viz.access import draw_access

    report = run(path, 4, 256)
    loads = [a for a in report.accesses if a.name == "x"]
    return draw_access(loads[0])
