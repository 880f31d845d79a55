"""The check of the fused addition and ReLU: the same numbers as PyTorch's, special ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie.course.checks.nb13.common import WARP, add, compare, is_far_off, vector
from yaie.course.core.expect import fail, given

NAME = "add_relu_half2_f16"


def check_add_relu(path: Path) -> None:
    add_once(path, 1000)
    for n in (33, 1, 2, 3, 31, 32, 1023, 1025):
        add_once(path, n)
    x, y = special()
    add_pair(path, x, y, f"n = {x.numel()} with NaN, infinities and sums that overflow")
    add_once(path, 1025, order="reverse")
    add_once(path, 100_003, checked=False)


def add_once(path: Path, n: int, **options: Any) -> None:
    import torch

    x, y = vector(n, 1, torch.float16), vector(n, 2, torch.float16)
    add_pair(path, x, y, f"n = {n:,}", **options)


def add_pair(path: Path, x: Any, y: Any, what: str, **options: Any) -> None:
    import torch

    n = x.numel()
    explain = {"out_of_bounds": lambda finding: told_bound(finding, n)}
    out, report = add(path, NAME, x, y, what=what, explain=explain, **options)
    total = x + y
    want = torch.relu(total)
    without_last = want.clone()
    without_last[-1] = float("nan")
    mistakes = [
        (x.relu() + y.relu(), "That is relu(x) + relu(y): the sum comes first."),
        (x.relu() + y, "That is relu(x) + y: the sum comes first."),
        (total, "That is the sum: what is below 0 has to become 0."),
        (
            want.nan_to_num(nan=0.0, posinf=float("inf")),
            "A NaN became 0, and with it the trace of whatever went wrong before. __hmax and fmaxf "
            "return the other number if one is NaN; __hmax_nan and __hmax2_nan keep the NaN.",
        ),
    ]
    if n % 2:
        mistakes.append((without_last, f"{n} is odd: the last element is in no pair."))
    compare(out, want, what, mistakes)
    if report is not None and n >= 1000:
        in_pairs(report, n, what)


def special() -> tuple[Any, Any]:
    """Every pair of some numbers that tell one formula from another."""
    import torch

    inf, nan = float("inf"), float("nan")
    values = [
        0.0,
        1.0,
        -1.0,
        0.1,
        2.5,
        3.14,
        -2.72,
        1e-7,
        65504.0,
        -65504.0,
        2049.0,
        inf,
        -inf,
        nan,
    ]
    numbers = torch.tensor(values, dtype=torch.float16)
    return numbers.repeat(len(values)), numbers.repeat_interleave(len(values))


def told_bound(finding: Any, n: int) -> str:
    if is_far_off(finding):
        return f"The index is far beyond the {n:,} elements, or negative."
    if finding.offset < 2 * n:
        return f"A pair that begins inside and ends outside: {n} is odd, and the last one is alone."
    return f"There are {n} elements, {n // 2} pairs: which threads have one?"


def in_pairs(report: Any, n: int, what: str) -> None:
    most = sum(a.requests for a in report.accesses if a.name == "x" and a.size == 2)
    if most > 2:
        with given(what):
            fail(
                f"the result is right, but x is read one element a thread, in {most:,} requests of "
                f"warps where {-(-n // (2 * WARP)):,} would do. Read and write through pointers to "
                "__half2."
            )


def draw_add_relu(path: Path) -> Any:
    """One request: 32 pairs are as many bytes as 32 floats."""
    import torch

    from yaie.course.viz.access import draw_access

    x, y = vector(1000, 1, torch.float16), vector(1000, 2, torch.float16)
    _, report = add(path, NAME, x, y, what="n = 1,000", explain={})
    loads = [a for a in report.accesses if a.name == "x" and a.size == 4]
    return draw_access(loads[0])
