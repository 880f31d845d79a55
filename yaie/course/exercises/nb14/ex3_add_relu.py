"""14.3: relu(x + y) of float16 pairs, number for number as PyTorch has it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import KernelCase, requests
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb14.vectors import WARP, draw_loads, see_result, vector

NAME = "add_relu_half2_f16"


def cases() -> Iterator[KernelCase]:
    for n in (1000, 33, 1, 2, 3, 31, 32, 1023, 1025):
        yield KernelCase(f"n = {n:,}", n=n)
    yield KernelCase("NaN, infinities and sums that overflow", n=None, first=0)
    yield KernelCase("the same without the first pair: n is 195", n=None, first=1)
    yield KernelCase("n = 1,025, threads in reverse order", n=1025, how={"order": "reverse"})
    yield KernelCase("n = 100,003", n=100_003, how={"checked": False})


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, y = (vector(case.n, i, torch.float16) for i in (1, 2)) if case.n else special(case.first)
    n = len(x)
    because = "It has to be what torch.relu(x + y) gives: the sum is rounded to float16 once."
    report = see_result(see, path, NAME, x, y, torch.relu(x + y), because=because, **case.how)
    if report is not None and n >= 1000:
        single = requests(report, name="x", kind="load", size=2)
        pairs = (
            f"{-(-n // (2 * WARP))} requests for pairs are enough: go through pointers to __half2."
        )
        see.at_most("requests of warps for single elements of x", single, 2, pairs)


def special(first: int) -> tuple[Any, Any]:
    """All pairs, from number `first` on, of numbers that tell one formula from another."""
    inf, nan = float("inf"), float("nan")
    values = [0.0, 1.0, -1.0, 0.1, 2.5, 3.14, -2.72, 1e-7]
    values += [65504.0, -65504.0, 2049.0, inf, -inf, nan]
    numbers = torch.tensor(values, dtype=torch.float16)
    pairs = numbers.repeat(len(values)), numbers.repeat_interleave(len(values))
    return tuple(x[first:].clone() for x in pairs)


def draw(path: Path) -> Any:
    """One request: 32 pairs are as many bytes as 32 floats."""
    return draw_loads(path, NAME, 1000, size=4, dtype=torch.float16)
