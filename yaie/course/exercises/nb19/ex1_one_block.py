"""19.1: the softmax of a thread block, over one chunk of scores and over several."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import KernelCase, in_every_order, operator_by
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb19 import paged

fit = operator_by("yaie.course.lessons.ops.cuda.attention_paged:one_block")
NAME = "paged_one_block"
CHUNK = 1024  # scores at a time

BECAUSE = (
    "With weights exp(score − best), out is the sum of weight × value, divided by the sum of the "
    "weights."
)
CARRY = (
    "From the second chunk on there are sums from before, relative to the old maximum: multiply "
    "total and sums by exp(old maximum − new maximum)."
)
LARGEST = (
    "If the maximum falls, that factor overflows: take the largest score of this chunk and of all "
    "before it."
)
NEGATIVE = "The maximum of negative scores is negative, so it has to begin at −INFINITY."
EXPLAIN = {
    "race": (
        "Scores come from all warps, and weights go to all: a barrier is needed between the writes "
        "of some threads and the reads of others. Thread 0 writes lse, and out[d] is written by "
        "thread d % THREADS."
    ),
    "uninitialized": (
        "A barrier is needed between the writes of all warps and the first read, and every warp "
        "has to write its place, with keys or without."
    ),
    "divergent_barrier": "Every thread has to reach every barrier, with a key or without.",
    "shuffle": (
        "All 32 lanes reach a shuffle, or none: it cannot stand in a loop over keys that some "
        "lanes leave earlier than others."
    ),
    "out_of_bounds": f"A chunk has `count` scores, the last at count - 1. {paged.OUTSIDE}",
}


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(
        paged.planned("20 and 5 tokens", (20, 5)), paged.planned("100 and 128 tokens", (100, 128))
    )
    yield paged.planned("300 tokens", (300,), dim=8)
    yield paged.planned("scores of several hundred", (50, 70), spread=300.0, because=paged.OVERFLOW)
    yield paged.planned("scores far below zero", make=low, because=NEGATIVE)
    words = "70 tokens, key 63 with a score of 113 and the others with 0"
    yield paged.planned(words, make=high, because=paged.OVERFLOW)
    yield paged.planned("0, 7 and 0 tokens", (0, 7, 0))
    for contexts in ((1025,), (2300, 1024)):
        words = " and ".join(f"{context:,}" for context in contexts)
        words = f"{words} tokens, {CHUNK:,} per chunk"
        yield paged.planned(words, contexts, heads=1, dim=4, because=f"{BECAUSE} {CARRY}")
    yield paged.planned("3,000 tokens whose scores rise", make=rising, because=CARRY)
    words = f"{CHUNK + 6:,} tokens, the first {CHUNK:,} with a score of 120 and the others with 0"
    yield paged.planned(words, make=falling, because=f"{CARRY} {LARGEST}")
    yield paged.planned("heads of 200, more than threads", (9,), dim=200)
    for dtype in ("float16", "bfloat16"):
        yield paged.planned(dtype, (60, 0, 3), dtype=dtype)


def low() -> paged.Batch:
    """Every score is far below 0."""
    batch = paged.batch_of((50,), heads=1)
    batch.tensors[0][...] = -5.0
    paged.place(batch, batch.keys[0] + 10.0)
    return batch


def high() -> paged.Batch:
    """One score is far above the others: that of the last lane of a warp."""
    batch = paged.batch_of((70,), heads=1)
    batch.tensors[0][...] = 20.0
    keys = batch.keys[0] * 0.0
    keys[63] = 1.0
    paged.place(batch, keys)
    return batch


def rising() -> paged.Batch:
    """Every score is larger than the one before it, over three chunks."""
    batch = paged.batch_of((3000,), heads=1, dim=4)
    batch.tensors[0][...] = 4.0
    paged.place(batch, batch.keys[0][batch.keys[0].sum(-1).flatten().argsort()])
    return batch


def falling() -> paged.Batch:
    """The scores of the second chunk are far below those of the first."""
    batch = paged.batch_of((CHUNK + 6,), heads=1, dim=4)
    batch.tensors[0][...] = 20.0
    keys = torch.zeros_like(batch.keys[0])
    keys[:CHUNK] = 3.0
    paged.place(batch, keys)
    return batch


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    batch = case.make()
    out, lse, _ = paged.call(see, path, NAME, case, batch, EXPLAIN)
    paged.see_result(see, batch, out, lse, case.because or BECAUSE)


def draw(path: Path) -> Any:
    """What each line costs a warp."""
    return paged.draw_rung(path, NAME, paged.batch_of((100,), dim=64, block_size=16))
