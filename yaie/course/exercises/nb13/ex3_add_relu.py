"""13.3: relu(x + y) of float16 pairs, number for number as PyTorch has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb13 import NOTEBOOK
from yaie.course.exercises.nb13.vectors import WARP, draw_loads, requests, see_result, vector

EXERCISE = Exercise(
    id="13.3",
    notebook=NOTEBOOK,
    slug="add_relu",
    title="Add and ReLU in one pass, in half precision",
    target="csrc/elementwise/add_relu_half2.cu#add_relu",
    task=(
        "Compute relu(x + y) of float16 vectors without writing the sum to memory in between. "
        "A thread has two neighboring elements, a `__half2` of 4 bytes: `__hadd2(a, b)` adds "
        "two pairs, `__hmax2_nan(a, b)` takes the larger of each, and NaN where one is NaN, "
        "`__float2half2_rn(0.0f)` is a pair of zeros. For a single `__half` they are called "
        "`__hadd`, `__hmax_nan` and `__float2half`. The launch is written. Every result has "
        "to equal that of `torch.relu(x + y)`."
    ),
    difficulty=2,
    minutes=12,
    hints=(
        "It is the shape of exercise 13.2 with two in place of four: whole pairs, and perhaps one "
        "element that is alone.",
        "The pair of a thread begins at element 2 × its number in the grid. Both are there if "
        "first + 2 <= n; otherwise one is, if first < n; otherwise none.",
        "With `first` as the pair's first element:\n"
        "    if (first + 2 <= n) {\n"
        "        __half2 a = *reinterpret_cast<const __half2*>(x + first);\n"
        "        ...\n"
        "        *reinterpret_cast<__half2*>(out + first) = __hmax2_nan(..., zeros);\n"
        "    } else if (...) {\n"
        "        out[first] = ...;  // the same with single numbers\n"
        "    }",
    ),
    proves=(
        "All numbers are PyTorch's, among them NaN, infinities and sums too large for float16, "
        "and odd lengths lose nothing."
    ),
)
NAME = "add_relu_half2_f16"


def cases() -> Iterator[Case]:
    for n in (1000, 33, 1, 2, 3, 31, 32, 1023, 1025):
        yield Case(f"n = {n:,}", n=n, special=False, how={})
    yield Case("NaN, infinities and sums that overflow", n=196, special=True, how={})
    yield Case(
        "n = 1,025, threads in reverse order", n=1025, special=False, how={"order": "reverse"}
    )
    yield Case("n = 100,003", n=100_003, special=False, how={"checked": False})


def observe(path: Path, case: Case, see: Observer) -> None:
    import torch

    n = case.n
    x, y = special() if case.special else (vector(n, i, torch.float16) for i in (1, 2))
    because = "It has to be what torch.relu(x + y) gives: the sum is rounded to float16 once."
    report = see_result(see, path, NAME, x, y, torch.relu(x + y), because=because, **case.how)
    if report is not None and n >= 1000:
        single = requests(report, "x", size=2)
        pairs = (
            f"{-(-n // (2 * WARP))} requests for pairs are enough: go through pointers to __half2."
        )
        see.at_most("requests of warps for single elements of x", single, 2, pairs)


def special() -> tuple[Any, Any]:
    """Every pair of some numbers that tell one formula from another."""
    import torch

    inf, nan = float("inf"), float("nan")
    values = [0.0, 1.0, -1.0, 0.1, 2.5, 3.14, -2.72, 1e-7]
    values += [65504.0, -65504.0, 2049.0, inf, -inf, nan]
    numbers = torch.tensor(values, dtype=torch.float16)
    return numbers.repeat(len(values)), numbers.repeat_interleave(len(values))


def draw(path: Path) -> Any:
    """One request: 32 pairs are as many bytes as 32 floats."""
    import torch

    return draw_loads(path, NAME, 1000, size=4, dtype=torch.float16)
