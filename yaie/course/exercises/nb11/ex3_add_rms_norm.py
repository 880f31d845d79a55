"""11.3: `add_rms_norm_kernel` beside float64, and the bytes that it loads."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.core.triton import run, triton
from yaie.course.exercises.nb11.tensors import (
    beyond_a_row,
    from_row,
    poisoned,
    randn,
    see_loaded,
    see_rows_begin,
    see_stored_once,
)
from yaie.course.lessons.traffic import fused_bytes, unfused_bytes
from yaie.ops.triton.norm import add_rms_norm


def fit(kernel: Any) -> Callable[..., Any]:
    """The operator, by the learner's kernel."""
    return lambda *arguments: add_rms_norm(*arguments, kernel)


EPS = 1e-2  # large, so that it shows


def cases() -> Iterator[Case]:
    yield rows_of(4, 6, programs=4)
    yield rows_of(5, 7, programs=2)
    yield rows_of(3, 13, programs=3, scale=0.05)  # squares of the size of eps
    for rows, size, programs in ((1, 1, 1), (2, 16, 2), (2, 17, 2), (1, 33, 4), (9, 576, 4)):
        yield rows_of(rows, size, programs)
    yield rows_of(4, 1000, programs=4, dtype="float16")
    yield rows_of(4, 1000, programs=4, dtype="float16", out="float32")  # total is rounded, out not
    yield rows_of(1, 4096, programs=1, first=1 << 19)


def rows_of(
    rows: int, size: int, programs: int, scale: float = 1.0, dtype: str = "float32", out: str = "",
    first: int = 0,
) -> Case:  # fmt: skip
    """`first`: how many other rows come before these."""
    kind = "" if dtype == "float32" else f" in {dtype}"
    kind += f", out in {out}" if out else ""
    name = f"{rows} rows of {size}{kind}, a grid of {programs}"
    if first:
        name = f"row {first:,}, the last one, of {size:,}: it begins at element 2³¹"
    return Case(
        name, rows=rows, size=size, programs=programs, scale=scale, dtype=dtype, out=out or dtype,
        first=first,
    )  # fmt: skip


def observe(kernel: Any, case: Case, see: Observer) -> None:
    rows, size, dtype = case.rows, case.size, getattr(torch, case.dtype)
    x, residual = (randn(rows, size, seed=s, dtype=dtype).mul_(case.scale) for s in (1, 2))
    weight = randn(size, seed=3, dtype=dtype)
    out = poisoned(rows, size, dtype=getattr(torch, case.out))
    total = poisoned(rows, size, dtype=dtype)
    first = case.first
    arguments = {
        "x": from_row(first, x), "residual": from_row(first, residual), "weight": weight,
        "out": from_row(first, out), "total": from_row(first, total),
        "rows": first + rows, "size": size, "eps": EPS,
    }  # fmt: skip
    out, total = (arguments[name][first:] for name in ("out", "total"))
    constants = {"BLOCK": triton.next_power_of_2(size), "STAGES": 1}
    with see.call("the launch"):
        trace = run(
            see, kernel, (case.programs,), arguments, beyond_a_row, first=first, **constants
        )
    for name in ("x", "residual"):
        see_rows_begin(see, trace, name, size)
    why = "total is x + residual. The next layer adds to it, so it is a result as well."
    see.equal("total", total, x + residual, why)
    exact = (x + residual).double()
    mean = exact.square().mean(dim=-1, keepdim=True)
    want = (exact * (mean + EPS).rsqrt() * weight.double()).to(out.dtype)
    why = "out = total / sqrt(mean(total²) + eps) × weight, computed in float32."
    see.close("out", out, want, why, rtol=1e-4 if out.itemsize == 4 else 2e-3, atol=1e-5)
    for name in ("out", "total"):
        see_stored_once(see, trace, name)
    for name in ("x", "residual"):
        see_loaded(see, trace, name, x.nbytes, "The sum is in registers already.")
    see_loaded(see, trace, "total", 0, "The sum is in registers already.")


def draw(kernel: Any) -> Any:
    """The bytes of one launch, beside those of operator after operator."""
    kinds = {
        "an operator at a time": unfused_bytes(64, 576),
        "in one kernel": fused_bytes(kernel, 64, 576),
    }
    return viz.draw_traffic(kinds)
