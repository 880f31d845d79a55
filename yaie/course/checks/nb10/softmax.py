"""The check of the fused softmax: one read, no matter how a row ends or what is in it."""

from __future__ import annotations

import math
from typing import Any

from yaie.course.checks.nb10.common import (
    NO_VALUE,
    poisoned,
    randn,
    read_once,
    row_past_the_end,
    rows_begin,
    spaced,
    written_once,
)
from yaie.course.core.expect import close, fail, given


def check_softmax(kernel: Any) -> None:
    import torch

    below_zero = randn(4, 6) - 5.0
    softmax_once(kernel, spaced(below_zero), "4 rows of 6 scores, all of them below 0", programs=4)
    softmax_once(kernel, randn(5, 7, seed=1), "5 rows of 7 scores", programs=2)
    large = spaced(randn(3, 13, seed=2) * 300.0)
    softmax_once(kernel, large, "3 rows of 13 scores up to 1,000", programs=3)
    softmax_once(kernel, hidden(), "rows in which some scores are -inf, and one has no other")
    for rows, columns, programs in ((1, 1, 1), (3, 16, 3), (2, 17, 2), (1, 33, 4), (37, 781, 5)):
        x = randn(rows, columns, seed=3)
        softmax_once(kernel, x, f"{rows} rows of {columns} scores", programs)
    half = randn(4, 1000, seed=4, dtype=torch.float16)
    softmax_once(kernel, half, "4 rows of 1,000 scores in float16", programs=4)


def hidden() -> Any:
    import torch

    x = randn(4, 6, seed=5)
    x[0, 3:] = -math.inf
    x[1, 0] = -math.inf
    x[2] = -math.inf
    return spaced(torch.as_tensor(x))


def softmax_once(kernel: Any, x: Any, what: str, programs: int = 4) -> Any:
    from yaie.course.core.triton import launch, triton

    rows, columns = x.shape
    out = poisoned(rows, columns, dtype=x.dtype)
    block = triton.next_power_of_2(columns)
    call = f"{what}, BLOCK = {block:,}, a grid of {programs}"
    arguments = {"x": x, "out": out, "rows": rows, "columns": columns}
    with given(call):
        trace = launch(kernel, (programs,), arguments, told_bound, BLOCK=block, STAGES=1)
        rows_begin(trace, "x", columns)
        compare(out, x, block, programs)
        written_once(trace, "out")
        read_once(
            trace, "x", x.nbytes,
            "A row fits in one block: load it once, and take maximum and sum of what you have.",
        )  # fmt: skip
    return trace


def told_bound(access: Any) -> str:
    if words := row_past_the_end(access):
        return words
    if access.kind == "store":
        return (
            "The lanes beyond the row's end store too. In all rows but the last that hits the "
            "next row, which may be finished already."
        )
    return (
        "BLOCK is the next power of two, so a block is longer than its row. Mask the lanes beyond "
        "`columns`. (Row r begins at element r × columns, whatever BLOCK is.)"
    )


def compare(out: Any, x: Any, block: int, programs: int) -> None:
    wide = x.double()
    want = wide.softmax(dim=-1).nan_to_num(0.0)
    rtol, atol = (1e-4, 1e-6) if x.itemsize == 4 else (1e-3, 1e-7)
    missing = out.isnan().all(dim=1) & ~wide.isinf().all(dim=1)
    if bool(missing.any()) and not bool(missing.all()):
        first = int(missing.nonzero()[0])
        if first >= programs and bool(missing[programs:].all()):
            fail(
                f"rows from {first} on were not computed: there are {programs} programs for "
                f"{len(x)} rows. Program p goes on with row p + {programs}, as long as there is "
                "one."
            )
    empty = wide.isinf().all(dim=1)
    if bool(empty.any()) and bool(out[empty].isnan().any()):
        fail(
            "the row that has only -inf gives NaN. -inf - -inf is NaN, and so is 0 / 0: subtract 0 "
            "where the maximum is -inf, and divide by 1 where the sum is 0."
        )
    if bool(out.isnan().all()):
        fail(f"out is NaN everywhere, or was never stored. {NO_VALUE}")
    close(
        out,
        want.to(x.dtype),
        "out",
        because=told_precision(x),
        mistakes=[(wrong.to(x.dtype), text) for wrong, text in wrong_outputs(wide, block)],
        rtol=rtol,
        atol=atol,
    )


def told_precision(x: Any) -> str:
    if x.itemsize == 2:
        return "Is it computed in float32? Convert what you load: `.to(tl.float32)`."
    return "Each row: exp(score - maximum), divided by the row's sum of these."


def wrong_outputs(x: Any, block: int) -> list[tuple[Any, str]]:
    """What known mistakes make of float64 scores."""
    import torch

    columns = x.shape[1]
    zeros = torch.nn.functional.pad(x, (0, block - columns))
    top = x.amax(dim=-1, keepdim=True)
    weights = (x - top).exp()
    padding = (block - columns) * torch.exp(-top)
    as_zero = (
        "The lanes beyond the row's end count as scores of 0: they are in the sum. Let them come "
        'as -inf, with `other=float("-inf")`, so that their exponential is 0.'
    )
    plain = x.float().exp()
    whole = (x - x.max()).exp()
    return [
        (zeros.softmax(dim=-1)[:, :columns], as_zero),
        (weights / (weights.sum(dim=-1, keepdim=True) + padding), as_zero),
        (
            weights / (weights.sum(dim=-1, keepdim=True) + block - columns),
            "The lanes beyond the row's end add 1 each to the sum: exp of something that was set "
            "to 0. Let them come as -inf.",
        ),
        (
            (plain / plain.sum(dim=-1, keepdim=True)).double(),
            "exp of a score above 88 is infinite in float32. Subtract the row's maximum first.",
        ),
        (weights, "It is not divided by the sum of the row."),
        (whole / whole.sum(), "Maximum and sum are of one row, not of all."),
        (x.log_softmax(dim=-1), "That is the logarithm of the softmax."),
    ]


def draw_softmax(kernel: Any) -> Any:
    """Seven rows of 5 by three programs."""
    from yaie.course.viz.programs import draw_programs, programs_of

    trace = softmax_once(kernel, randn(7, 5, seed=6), "7 rows of 5 scores", programs=3)
    return draw_programs(programs_of(trace, "out", "store"))
