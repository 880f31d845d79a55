"""15.5: a tree whose additions are done by the first threads, so that warps are full or idle."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb15.rows import rows_of

SHAPES = ((1, 64), (2, 256), (1, 96), (1, 33), (3, 1), (1, 2), (1, 1000), (1, 1024))
EXPLAIN = {
    "race": "A step reads what other threads have written in the step before: wait before each.",
    "divergent_barrier": "Threads that have nothing to add must reach the barrier, too.",
    "out_of_bounds": "`partial` has one place for each of the `threads` threads.",
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(case(*shape) for shape in SHAPES))
    yield case(2, 64, suffix="f16")
    yield case(1, 256, words=", and its costs", costs=True)


def case(
    blocks: int, threads: int, words: str = "", suffix: str = "f32", **data: Any
) -> KernelCase:
    count = f"{blocks} thread block{'s' * (blocks > 1)} of {threads:,} thread{'s' * (threads > 1)}"
    name = count + f", {suffix}" * (suffix != "f32") + words
    return KernelCase(name, blocks=blocks, threads=threads, suffix=suffix, **data)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, out = rows_of(case.blocks, case.threads, case.suffix), cuda.poisoned(case.blocks)
    name = f"block_sums_{case.suffix}"
    given = (x, out, case.blocks, case.threads)
    report = cuda.run(see, path, name, *given, explain=EXPLAIN, **case.how)
    whole = f"Each output is the sum of {case.threads:,} numbers, added in float32."
    see.close("out", out, x.double().sum(-1).float(), cuda.unwritten(out, whole), rtol=1e-5)
    if case.costs:
        taken = cuda.requests(report, memory="shared")
        see.at_most(
            "requests of warps to shared memory", taken, most_requests(case.threads),
            "Full warps need two loads and a store for each 32 additions of a step. A request for "
            "a few lanes costs a warp as much as one for 32.",
        )  # fmt: skip


def most_requests(threads: int) -> int:
    """Of the first store, the tree's two loads and a store in full warps, and the last load."""
    requests, places = -(-threads // 32) + 1, threads
    while places > 1:
        requests += 3 * -(-(places // 2) // 32)
        places = -(-places // 2)
    return requests


def draw(path: Path) -> Any:
    """The lanes that are active in the stores of a tree over 256 places."""
    from yaie.course.viz.memory import draw_lanes_active

    x, out = rows_of(1, 256), cuda.poisoned(1)
    report = cuda.report_of(path, "block_sums_f32", x, out, 1, 256)
    stores = cuda.accesses(report, memory="shared", kind="store")
    return draw_lanes_active(stores[-1], "the tree's stores")
