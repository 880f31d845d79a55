"""15.6: parts, a fence, a ticket, and the thread block that finishes last."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb15.rows import rows_of

# elements, thread blocks
SHAPES = ((600, 3), (1, 1), (128, 1), (4096, 8), (1000, 2), (50, 4), (40000, 300), (0, 2), (700, 5))
EXPLAIN = {
    "race": (
        "The part has to be stored first, then a __threadfence(), then an atomic on the ticket: "
        "only then is it ordered before what the last thread block reads."
    ),
    "uninitialized": "Every thread reads `last`, which one thread writes: put a barrier between.",
    "divergent_barrier": (
        "block_sum() and barriers need all threads of a thread block: all have to learn whether it "
        "is the last one."
    ),
    "out_of_bounds": "`parts` has a place for each thread block, gridDim.x in all.",
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(case(*shape) for shape in SHAPES))
    yield case(5000, 7, "bf16")


def case(n: int, blocks: int, suffix: str = "f32") -> KernelCase:
    name = f"{n:,} element{'s' * (n != 1)}, {blocks} thread block{'s' * (blocks > 1)}"
    return KernelCase(name + f", {suffix}" * (suffix != "f32"), n=n, blocks=blocks, suffix=suffix)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x = rows_of(1, case.n, case.suffix)[0]
    ticket = torch.zeros(1, dtype=torch.int32)
    wanted = x.double().sum().float().view(1)
    for launch in ("first", "second"):
        out, parts = cuda.poisoned(1), cuda.poisoned(case.blocks)
        given = (x, out, parts, ticket, case.n, case.blocks)
        cuda.run(see, path, f"total_sum_{case.suffix}", *given, explain=EXPLAIN, **case.how)
        why = "One thread block, the last one to finish, adds up all the parts."
        why = cuda.unwritten(out, why)
        see.close(f"out after the {launch} launch", out, wanted, why, rtol=1e-5)
        again = "The next launch begins to count where this one ends."
        see.equal(f"ticket after the {launch} launch", ticket.tolist(), [0], again)


def draw(path: Path) -> Any:
    x, ticket = rows_of(1, 4096)[0], torch.zeros(1, dtype=torch.int32)
    given = (x, cuda.poisoned(1), cuda.poisoned(8), ticket, 4096, 8)
    return cuda.draw_lines(path, "total_sum_f32", *given)
