"""13.1: a first kernel, its index, its bound and its launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb13 import NOTEBOOK
from yaie.course.exercises.nb13.vectors import WARP, requests, see_result, vector

EXERCISE = Exercise(
    id="13.1",
    notebook=NOTEBOOK,
    slug="vector_add",
    title="Add two vectors, one element per thread",
    target="csrc/elementwise/vector_add_scalar.cu#vector_add",
    task=(
        "Write a kernel and its launch. In the kernel: which element is this thread's, does it "
        "exist, and its sum. In the launcher: how many thread blocks of `THREADS` threads "
        "cover `n` elements, and the launch on `stream`. Change the lines between `begin` and "
        "`end` only, in both places."
    ),
    difficulty=1,
    minutes=10,
    hints=(
        "Every thread runs the same lines. What differs is threadIdx.x, its number in its "
        "thread block, and blockIdx.x, the number of its thread block. From these two it works "
        "out which element it is responsible for.",
        "Before thread block b there are b thread blocks of blockDim.x threads each. The grid "
        "must have at least n threads, so the division rounds up; those that are left over in "
        "the last thread block must not touch memory.",
        "In the kernel:\n"
        "    int i = ... * blockDim.x + ...;\n"
        "    if (...) out[i] = ...;\n"
        "In the launcher, with (n + THREADS - 1) / THREADS thread blocks:\n"
        "    vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);",
    ),
    proves=(
        "Every element is right for 13 lengths, no thread touched memory that is not there, "
        "and the order of the threads made no difference."
    ),
)


def cases() -> Iterator[Case]:
    for n in (1000, 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2048):
        yield Case(f"n = {n:,}", n=n, how={})
    yield Case("n = 1,025, threads in reverse order", n=1025, how={"order": "reverse"})
    yield Case("n = 100,003", n=100_003, how={"checked": False})


def observe(path: Path, case: Case, see: Observer) -> None:
    x, y = vector(case.n, 1), vector(case.n, 2)
    report = see_result(see, path, "vector_add_scalar_f32", x, y, x + y, **case.how)
    if report is not None:
        fewest = -(-case.n // WARP)
        together = f"The 32 threads of a warp ask together: {fewest:,} requests are enough."
        most = fewest + fewest // 4 + 1
        see.at_most("requests of warps to read x", requests(report, "x"), most, together)
