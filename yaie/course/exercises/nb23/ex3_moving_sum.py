"""23.3: a kernel with three faults, each of which one tool of compute-sanitizer reports."""

from collections.abc import Iterator
from pathlib import Path

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb14.vectors import vector

LENGTHS = (1000, 1, 2, 255, 256, 257, 512, 513, 1023)
EXPLAIN = {
    "out_of_bounds": "x has no element before its first and none after its last: 0 stands there.",
    "race": "A thread reads places of `tile` that other threads write.",
    "uninitialized": "Each place of `tile` that is read has to be written, past the ends of x too.",
    "divergent_barrier": "Threads that have no element must reach the barrier, too.",
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(KernelCase(f"n = {n:,}", n=n) for n in LENGTHS))


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, out = vector(case.n), cuda.poisoned(case.n)
    report = cuda.run(see, path, "moving_sum_f32", x, out, case.n, explain=EXPLAIN, **case.how)
    reads = cuda.requests(report, name="out", kind="load")
    see.equal("requests of warps to read out", reads, 0, "Nothing has written out before.")
    padded = torch.nn.functional.pad(x.double(), (1, 1))
    want = (padded[:-2] + padded[1:-1] + padded[2:]).float()
    three = "Each is the sum of three, with zeros past both ends of x."
    see.close("out", out, want, cuda.unwritten(out, three), rtol=1e-5, atol=1e-6)
    most = -(-case.n // 32) + 2 * -(-case.n // 256)
    share = "A thread loads its own element; two threads of a thread block load one more."
    see.at_most("requests of warps to read x", cuda.requests(report, name="x"), most, share)
