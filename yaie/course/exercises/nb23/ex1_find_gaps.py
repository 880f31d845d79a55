"""23.1: the gaps in the timeline of a profiler, and what the GPU waits for in each."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons import data_nb22
from yaie.course.lessons.timeline import Gap, Kernel, find_gaps, recorded

PLANNED = {
    "two kernels, and the second is launched late": [(0, 2, 5), (9, 10, 12)],
    "a graph: one launch for three kernels": [(1, 3, 5), (1, 6, 8), (1, 8, 9)],
    "kernels that follow each other": [(0, 1, 4), (1, 4, 6), (2, 6, 7)],
    "a kernel that begins before its launch has returned": [(0, 2, 5), (11, 9, 12)],
    "two streams: a long kernel beside a short one": [(0, 1, 10), (2, 3, 4), (3, 12, 14)],
    "in the order of the launches, not of the beginnings": [(0, 1, 3), (2, 9, 11), (4, 5, 7)],
    "a kernel that waits for one of another stream, which is launched later": [
        (0, 1, 3), (9, 10, 12), (5, 13, 15),
    ],
    "no kernel": [],
}  # fmt: skip
LEFT = {"CPU": "every launched kernel has run", "GPU": "a launched kernel has not begun"}


def cases() -> Iterator[Case]:
    for name, rows in PLANNED.items():
        yield Case(name, kernels=[Kernel(*row) for row in rows])
    generator = random.Random(0)
    for number in range(200):
        kernels = [draw_one(generator) for _ in range(generator.randint(1, 6))]
        yield Case(f"random timeline {number + 1}", kernels=kernels)
    for way, kernels in steps().items():
        yield Case(f"a recorded decode step, {way}", kernels=kernels, recorded=True)


def draw_one(generator: random.Random) -> Kernel:
    begins = generator.randint(2, 30)
    launched = begins + generator.choice((-9, -4, -2, -1, 0, 1))
    return Kernel(launched, begins, begins + generator.randint(1, 5))


def steps() -> dict[str, list[Kernel]]:
    """The kept step of notebook 22, in both ways."""
    batch = data_nb22.kept()["graph"]["batches"]["1"]
    return {way: recorded(batch[way]["events"]) for way in ("eager", "graph")}


def observe(find: Callable[[Sequence[Kernel]], Any], case: Case, see: Observer) -> None:
    given = list(case.kernels)
    with see.call("find_gaps(kernels)"):
        got = find(given)
    see.kind("find_gaps(kernels)", got, list)
    same = given == list(case.kernels)
    see.true("the list of kernels", same, "is in another order", "It belongs to the caller.")
    if not getattr(case, "recorded", False):
        want = by_the_tick(case.kernels)
        plain = [tuple(gap) if isinstance(gap, tuple) else gap for gap in got]
        see.equal(
            "the list of gaps", plain, [tuple(gap) for gap in want], because(case.kernels, want)
        )
        return
    for who in ("CPU", "GPU"):
        wanted = sum(late(case.kernels, who))
        came = sum(gap[1] - gap[0] for gap in got if gap[2] == who)
        words = f"These are all times in which no kernel runs, and {LEFT[who]}, added up."
        see.close(f"the microseconds that it waits for the {who}", came, wanted, words, rtol=1e-6)


def state(kernels: Iterable[Kernel], time: float) -> str:
    """What the GPU does at a moment."""
    if any(kernel.begins <= time < kernel.ends for kernel in kernels):
        return ""
    queued = any(kernel.launched <= time < kernel.begins for kernel in kernels)
    return "GPU" if queued else "CPU"


def by_the_tick(kernels: Sequence[Kernel]) -> list[Gap]:
    """The same for whole microseconds, each of them looked at by itself."""
    if not kernels:
        return []
    ticks = range(min(k.begins for k in kernels), max(k.ends for k in kernels))
    gaps = []
    for who, run in groupby(ticks, lambda time: state(kernels, time + 0.5)):
        run = list(run)
        if who:
            gaps.append(Gap(run[0], run[-1] + 1, who))
    return gaps


def late(kernels: Sequence[Kernel], who: str) -> Iterator[float]:
    """The lengths of all times between two events in which the GPU waits for `who`."""
    first, last = min(k.begins for k in kernels), max(k.ends for k in kernels)
    times = sorted({time for k in kernels for time in k if first <= time <= last})
    for time, after in pairwise(times):
        if state(kernels, (time + after) / 2) == who:
            yield after - time


def because(kernels: Sequence[Kernel], gaps: Sequence[Gap]) -> str:
    rows = "; ".join(f"launched {k.launched}, runs {k.begins} to {k.ends}" for k in kernels)
    if not gaps:
        return f"Kernels ({rows or 'none'}): the GPU never waits between them."
    begins, ends, who = gaps[0]
    return f"Kernels ({rows}): from {begins} to {ends} none runs, and {LEFT[who]}."


def draw(find: Callable[[Sequence[Kernel]], Sequence[Gap]] = find_gaps) -> Any:
    """The kept step in both ways, with the gaps that the function finds."""
    names = {"eager": "eager, launch by launch", "graph": "one CUDA graph"}
    works, gaps = {}, {}
    for way, kernels in steps().items():
        first = min(kernel.begins for kernel in kernels) - 20
        works[names[way]] = [viz.Work(k.begins - first, k.ends - k.begins) for k in kernels]
        gaps[names[way]] = [(gap[0] - first, gap[1] - first, gap[2]) for gap in find(kernels)]
    return viz.draw_work(works, 1400, gaps)
