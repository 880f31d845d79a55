"""The check of RMSNorm fused with the addition before it."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb10.common import (
    NO_VALUE,
    poisoned,
    randn,
    read_once,
    row_past_the_end,
    rows_begin,
    written_once,
)
from yaie.course.core.expect import close, equal, fail, given

EPS = 1e-2  # large, so that it shows


def check_add_rms_norm(kernel: Any) -> None:
    import torch

    norm_once(kernel, 4, 6, programs=4)
    norm_once(kernel, 5, 7, programs=2)
    norm_once(kernel, 3, 13, programs=3, scale=0.05)  # squares of the size of eps
    for rows, size, programs in ((1, 1, 1), (2, 16, 2), (2, 17, 2), (1, 33, 4), (9, 576, 4)):
        norm_once(kernel, rows, size, programs)
    norm_once(kernel, 4, 1000, programs=4, dtype=torch.float16)


def norm_once(
    kernel: Any, rows: int, size: int, programs: int, scale: float = 1.0, dtype: Any = None
) -> Any:
    from yaie.course.core.triton import launch, triton

    x, residual = (randn(rows, size, seed=s, dtype=dtype) for s in (1, 2))
    x.mul_(scale), residual.mul_(scale)
    weight = randn(size, seed=3, dtype=dtype)
    out, total = poisoned(rows, size, dtype=dtype), poisoned(rows, size, dtype=dtype)
    block = triton.next_power_of_2(size)
    kind = "" if dtype is None else " in float16"
    call = f"{rows} rows of {size}{kind}, BLOCK = {block:,}, a grid of {programs}"
    arguments = {
        "x": x, "residual": residual, "weight": weight, "out": out, "total": total,
        "rows": rows, "size": size, "eps": EPS,
    }  # fmt: skip
    with given(call):
        trace = launch(kernel, (programs,), arguments, told_bound, BLOCK=block, STAGES=1)
        for name in ("x", "residual"):
            rows_begin(trace, name, size)
        not_all_rows(out, programs)
        compare_total(total, x, residual)
        compare(out, x, residual, weight, block)
        for name in ("out", "total"):
            written_once(trace, name)
        for name in ("x", "residual"):
            read_once(trace, name, x.nbytes, "The sum is in registers already.")
        read_once(trace, "total", 0, "What was just stored is in registers: there is no need to "
                  "load it again.")  # fmt: skip
    return trace


def told_bound(access: Any) -> str:
    if words := row_past_the_end(access):
        return words
    if access.kind == "store":
        return "The lanes beyond the row's end store too: both stores need the mask."
    if access.name == "weight":
        return "The weight has as many elements as a row, and needs the same mask."
    return (
        "BLOCK is the next power of two, so a block is longer than its row. Mask the lanes beyond "
        "`size`. (Row r begins at element r × size, whatever BLOCK is.)"
    )


def not_all_rows(out: Any, programs: int) -> None:
    missing = out.isnan().all(dim=1)
    if programs < len(out) and bool(missing[programs:].all()) and not bool(missing.all()):
        fail(
            f"rows from {programs} on were not computed: there are {programs} programs for "
            f"{len(out)} rows. Program p goes on with row p + {programs}, as long as there is one."
        )
    if bool(missing.all()):
        fail(f"out is NaN everywhere, or was never stored. {NO_VALUE}")


def compare_total(total: Any, x: Any, residual: Any) -> None:
    because = "The next layer adds to it, so it is a result as well."
    if bool(total.isnan().all()):
        because = f"It was never stored. {because}"
    equal(total, x + residual, "total", because=because, mistakes=[
        (x, "That is x alone: add the residual."),
        (residual, "That is the residual alone: add x."),
    ])  # fmt: skip


def compare(out: Any, x: Any, residual: Any, weight: Any, block: int) -> None:
    total = (x + residual).double()
    gain = weight.double()
    size = total.shape[1]
    squares = total.square()

    def scaled(mean: Any) -> Any:
        return total * (mean + EPS).rsqrt() * gain

    mean = squares.mean(dim=-1, keepdim=True)
    alone = x.double()
    centered = total - total.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    wrong = [
        (
            scaled(squares.sum(dim=-1, keepdim=True) / block),
            f"The mean was taken over BLOCK = {block} lanes. A row has {size} elements; the rest "
            "is there because a block has to be a power of two.",
        ),
        (scaled(squares.sum(dim=-1, keepdim=True)), "The sum of squares was not divided by size."),
        (total * mean.rsqrt() * gain, "eps is missing."),
        (total / (mean.sqrt() + EPS) * gain, "eps belongs under the root."),
        (total / (mean + EPS) * gain, "The root is missing: divide by sqrt(mean + eps)."),
        (total * (mean + EPS).sqrt() * gain, "The root is multiplied with: divide by it."),
        (total * (mean + EPS).rsqrt(), "The weight is missing."),
        (
            alone * (alone.square().mean(dim=-1, keepdim=True) + EPS).rsqrt() * gain,
            "That is the norm of x alone, without the residual.",
        ),
        (
            centered * (variance + EPS).rsqrt() * gain,
            "The mean was taken off first: that is layer normalization. RMSNorm leaves it.",
        ),
    ]
    rtol, atol = (1e-4, 1e-5) if out.itemsize == 4 else (2e-3, 1e-5)
    close(
        out,
        scaled(mean).to(out.dtype),
        "out",
        because="out = total / sqrt(mean(total²) + eps) × weight, computed in float32.",
        mistakes=[(value.to(out.dtype), text) for value, text in wrong],
        rtol=rtol,
        atol=atol,
    )


def draw_norm(kernel: Any) -> Any:
    """The bytes of one launch, beside those of operator after operator."""
    from yaie.course.checks.nb10.traffic import fused_bytes, unfused_bytes
    from yaie.course.viz.programs import draw_traffic

    kinds = {
        "an operator at a time": unfused_bytes(64, 576),
        "in one kernel": fused_bytes(kernel, 64, 576),
    }
    return draw_traffic(kinds)
