"""20.1: Blelloch's scan: right for any length and any width, no race, about 2 × n additions."""

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb20.metadata import ints
from yaie.emulator.checks import Finding

# Numbers, threads of the thread block.
SIZES = ((1, 1), (2, 1), (8, 4), (5, 4), (3, 4), (64, 32), (100, 64), (9, 2), (130, 16), (0, 4))
TIMED = (512, 256)
MOST_TOUCHED = 9000  # elements that are read or written: up and down take about 9 for each number
MOST_REQUESTS = 900


def cases() -> Iterator[KernelCase]:
    yield case([1, 2, 3, 4], 2)
    yield from cuda.in_every_order(*(case(numbers(n), threads) for n, threads in SIZES))
    yield case(numbers(TIMED[0]), TIMED[1], costs=True)


def case(x: list[int], threads: int, costs: bool = False) -> KernelCase:
    words = str(x) if len(x) <= 8 else f"{len(x)} numbers"
    name = f"{words}, {threads} thread{'s' * (threads > 1)}"
    return KernelCase(name, x=x, threads=threads, costs=costs)


def numbers(n: int) -> list[int]:
    generator = random.Random(n)
    return [generator.randrange(1, 10) for _ in range(n)]


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    n = len(case.x)
    x, out = ints(case.x), cuda.poisoned(n + 1, dtype=torch.int32)
    report = cuda.run(
        see, path, "blelloch_i32", x, out, n, case.threads, explain=EXPLAIN, **case.how
    )
    sums = "out[i] is the sum of the numbers before i, and out[n] the sum of all."
    want = list(accumulate(case.x, initial=0))
    see.equal("out", out.tolist(), want, cuda.unwritten(out, sums))
    if case.costs:
        shared = cuda.accesses(report, memory="shared")
        halved = "Half as many pairs are left after each step, so 2 × n additions are enough."
        touched = sum(access.lanes for access in shared)
        see.at_most(
            "the number of elements of sums that were touched", touched, MOST_TOUCHED, halved
        )
        every = "In the first step of the way up every thread has a pair."
        requests = sum(access.requests for access in shared)
        see.at_most(
            "the warps' number of requests to shared memory", requests, MOST_REQUESTS, every
        )


def _race(found: Finding) -> str:
    if found.memory == "global":
        return "Thread 0 alone writes out[n]."
    return (
        "After every step all threads have to wait: the next step reads what others have written."
    )


EXPLAIN: cuda.Explain = {
    "race": _race,
    "uninitialized": (
        "A tile has two numbers for each thread, and elements beyond the last number count as 0: "
        "fill all 2 × blockDim.x of them."
    ),
    "out_of_bounds": lambda found: (
        "A tile has 2 × blockDim.x elements."
        if found.memory == "shared"
        else "x has n numbers, the last one at n - 1, and out has n + 1."
    ),
    "divergent_barrier": (
        "A thread that has no pair in a step still has to reach its __syncthreads(): keep it out "
        "of the `if`."
    ),
}


def draw(path: Path) -> Any:
    """What each line costs."""
    n, threads = TIMED
    out = cuda.poisoned(n + 1, dtype=torch.int32)
    return cuda.draw_lines(path, "blelloch_i32", ints(numbers(n)), out, n, threads)
