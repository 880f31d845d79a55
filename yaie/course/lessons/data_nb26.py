"""What notebook 26 runs and counts: the rungs for Hopper, what their consumers do and when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from yaie.build.nvcc import CSRC
from yaie.course.core import paths
from yaie.course.core.cuda import module_of
from yaie.course.core.printed import hear
from yaie.course.lessons.changed import changed
from yaie.emulator import settings

if TYPE_CHECKING:
    from yaie.course.viz.turns import Span

kept = partial(paths.kept, "18_flash_hopper_h100")  # the figures of the ladder flash_hopper
INCLUDE = '#include "flash/hopper/tiles.cuh"\n'
ROWS = 64  # queries of a warp group
# One thread of each consumer of the thread block that has work prints what it starts and waits for.
EVENTS = """
#define TELL(WHAT, NUMBER) \\
    (threadIdx.x % WARP_GROUP == 0 && blockIdx.x == BLOCK ? \\
     printf("told: %d " WHAT " %d\\n", int(threadIdx.x / WARP_GROUP) - 1, NUMBER) : 0)
template <int PENDING>
__device__ inline void told_wait() { TELL("wait", PENDING), wgmma_wait<PENDING>(); }
template <typename T, int DIM, int KEYS, bool TOGETHER = false, typename... Parts>
__device__ inline void told_keys(Parts&&... parts) {
    TELL("scores", 0), multiply_keys<T, DIM, KEYS, TOGETHER>(parts...);
}
template <typename T, int DIM, int KEYS, bool TOGETHER = false, typename... Parts>
__device__ inline void told_values(Parts&&... parts) {
    TELL("output", 0), add_values<T, DIM, KEYS, TOGETHER>(parts...);
}
#define wgmma_wait told_wait
#define named_barrier_sync(id, threads) \\
    (named_barrier_sync(id, threads), (threads) > WARP_GROUP ? TELL("begin", id) : 0)
#define named_barrier_arrive(id, threads) (TELL("end", id), named_barrier_arrive(id, threads))
#define multiply_keys told_keys
#define add_values told_values
#define weigh(scores) weigh((TELL("weights", 0), scores))
"""


class Event(NamedTuple):
    """What a consumer does: "begin" or "end" of a turn, "scores" or "output" starts a product,
    "wait" for all products but the `number` newest, "weights" computes exponentials."""

    consumer: int
    what: str
    number: int


def with_kernel(path: Path) -> str:
    """The text of a `tiles.cuh` with the first rung after it: a file that has launchers."""
    rung = CSRC / "flash/hopper/tma.cu"
    tiles = changed(path.read_text(encoding="utf-8"), path, {"#pragma once": ""})
    return f"{tiles}\n{changed(rung.read_text(encoding='utf-8'), rung, {INCLUDE: ''})}"


def events(source: Path | str, tiles: int, head_dim: int, order: str = "forward") -> list[Event]:
    """What the consumers of rung 2 or 3 do, in the order in which one of their threads does it.

    Args:
        source: a file with the kernel of `pingpong.cu` or `producer.cu` in `csrc/flash/hopper`, or
            its text.
        tiles: of keys that each consumer visits.
        head_dim: 64 has three consumers and tiles of 128 keys, 128 has two, and in `pingpong.cu`
            tiles of 160.
        order: in which threads take their turns in the emulator.
    """
    path = CSRC / "flash/hopper/pingpong.cu"
    if isinstance(source, Path):
        path, source = source, source.read_text(encoding="utf-8")
    name = "pingpong" if "flash_pingpong_f16" in source else "producer"
    block = "0" if name == "pingpong" else "gridDim.x - 1"  # no other has queries
    source = changed(source, path, {INCLUDE: INCLUDE + EVENTS.replace("BLOCK", block)})
    keys = 160 if head_dim > 64 and name == "pingpong" else 128
    own = "launch<T, 64" if head_dim <= 64 else "launch<T, 128"
    if name == "pingpong":  # no cache: any tile fits its blocks, and no box is of several
        own += ", false, false" if head_dim <= 64 else ", true, false"
    source = re.sub(r"launch<T, \d+[^>]*>\(", f"{own}>(", source)  # less to compile
    queries = 192 if head_dim <= 64 else 128
    q = torch.ones(queries, 1, head_dim).half()
    k = torch.ones(tiles * keys, 1, head_dim).half()
    out, lse = torch.empty_like(q), torch.empty(queries, 1)
    module = module_of(source, path)
    with hear() as lines, settings(order=order, time_limit=3.0):
        getattr(module, f"flash_{name}_f16")(
            *(q, k, k, out, lse, None, None, None, None, 1, queries, len(k), 1, 1, head_dim),
            *(head_dim, head_dim, head_dim, 0, 0, 0.1, 0),
        )
    return [Event(int(consumer), what, int(number)) for consumer, what, number in lines]


# ---------------------------------------------------------------------------------------- counts


class Cycles(NamedTuple):
    """How long one warp group's tile of keys takes each unit of an SM at the least, in cycles.

    Attributes:
        product: each of its two products on the tensor cores.
        exponentials: its powers of 2 on the special function units.
        others: maximum, multiply-add, sum, in the units for float32.
    """

    product: float
    exponentials: float
    others: float


FLOPS, EXPONENTIALS, FLOAT32 = 4096, 16, 128  # of an SM per cycle; a product's are 16-bit


def cycles(head_dim: int, keys: int) -> Cycles:
    """Of 64 queries and `keys` keys."""
    scores = ROWS * keys
    return Cycles(2 * scores * head_dim / FLOPS, scores / EXPONENTIALS, 3 * scores / FLOAT32)


START = 16.0  # cycles, in the model


def replay(did: Sequence[Event], product: float, weights: float, apart: float = 0.0) -> list[Span]:
    """Give the consumers' work times, in a model with three numbers.

    The tensor cores serve products in the order in which they were started. Consumers that start
    theirs at the same time, instruction by instruction, share them equally; and those that compute
    weights at the same time share the units for that. All else takes no time.

    Args:
        did: of `events`.
        product, weights: how many cycles one of them takes alone; to start a product takes `START`.
        apart: by how many cycles each consumer begins after the one before it.

    Returns:
        The products and the weights, in the order in which they begin.
    """
    runs = [
        _Consumer(c, [event for event in did if event.consumer == c], now=c * apart)
        for c in sorted({event.consumer for event in did})
    ]
    time, spans, turns = 0.0, [], Counter[int]()
    takes = {"scores": product, "output": product, "weights": weights}
    while True:
        while any(run.goes_on(time, turns, takes) for run in runs):
            pass
        products = [run.products[0] for run in runs if run.products]
        first = min((job.asked for job in products), default=0.0)
        units = [[job for job in products if job.asked < first + START]]
        units.append([job for run in runs for job in run.weights])
        ends = [run.now for run in runs if run.now > time]
        ends += [time + job.left * len(unit) for unit in units for job in unit]
        if not ends:
            return sorted(spans, key=lambda span: (span.begin, span.consumer))
        after = min(ends)
        for unit in units:
            for job in unit:
                job.begin = time if job.begin is None else job.begin
                job.left -= (after - time) / len(unit)
        for run in runs:
            spans += run.finish(after)
        time = after


@dataclass
class _Job:
    what: str
    tile: int
    left: float  # cycles that it takes alone
    asked: float  # when it was started
    begin: float | None = None


@dataclass
class _Consumer:
    """What one of `replay` has yet to do, and what it has started."""

    number: int
    to_do: list[Event]
    now: float  # when it begins
    products: list[_Job] = field(default_factory=list)  # the first of them runs
    weights: list[_Job] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)

    def goes_on(self, time: float, turns: Counter[int], takes: dict[str, float]) -> bool:
        """Do the next thing, unless it must wait."""
        if not self.to_do or self.weights or self.now > time:
            return False
        event = self.to_do[0]
        if event.what == "wait" and len(self.products) > event.number:
            return False
        if event.what == "begin":
            if not turns[event.number]:
                return False
            turns[event.number] -= 1
        elif event.what == "end":
            turns[event.number] += 1
        elif event.what != "wait":
            job = _Job(event.what, self.started[event.what], takes[event.what], time)
            self.started[event.what] += 1
            (self.weights if event.what == "weights" else self.products).append(job)
            self.now = time + START * (event.what != "weights")
        self.to_do.pop(0)
        return True

    def finish(self, time: float) -> list[Span]:
        """What is done by now."""
        from yaie.course.viz.turns import Span  # a check draws nothing, and imports no matplotlib

        done = [job for job in self.products[:1] + self.weights if job.left < 1e-6]
        self.products = [job for job in self.products if job not in done]
        self.weights = [job for job in self.weights if job not in done]
        return [Span(self.number, job.what, job.tile, job.begin or 0.0, time) for job in done]


def decode_intensity(group: int, head_dim: int = 128) -> float:
    """Operations per byte of 16-bit keys and values when `group` query heads share them, and each
    sequence has one query."""
    return 4 * group * head_dim / (2 * head_dim * 2)


def rows(record: dict[str, Any], shape: str) -> dict[str, dict[str, float]]:
    """What was timed of a shape, each by its name."""
    return {name: row for name, row in record["problems"][shape]["rows"].items() if "ms" in row}
