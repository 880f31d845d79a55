"""28.2: when requests come, if their mean rate changes in the course of the day."""

import math
import random
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer

PARTS = 8  # of a run, in which arrivals are counted
RUNS = 300


def steps(time: float) -> float:
    """Nothing, then much, then little: it changes within a gap."""
    return (0.0, 8.0, 0.5, 4.0)[int(time) % 4]


CURVES: dict[str, tuple[Callable[[float], float], float, float]] = {
    "a rate of 0, 8, 0.5 and 4 for a second each": (steps, 8.0, 8.0),
    "a rate that rises evenly from 0 to 6": (lambda time: 0.75 * time, 6.0, 8.0),
    "a constant rate of 5": (lambda time: 5.0, 5.0, 8.0),
    "a constant rate of 2 with peak 10": (lambda time: 2.0, 10.0, 8.0),
    "a wave between 0 and 0.6 in 80 s": (lambda t: 0.3 - 0.3 * math.cos(t), 0.6, 80.0),
}


def cases() -> Iterator[Case]:
    for name in CURVES:
        yield Case(name, curve=name)
    yield Case("a rate of 0", curve="", what="none")
    yield Case("the generator", curve="", what="generator")
    yield Case("rates that cannot be", curve="", what="limits")


def observe(varying_arrivals: Any, case: Case, see: Observer) -> None:
    if case.curve:
        observe_curve(varying_arrivals, *CURVES[case.curve], see)
    elif case.what == "none":
        with see.call("varying_arrivals(rate, 3.0, 50.0, rng)"):
            times = varying_arrivals(lambda time: 0.0, 3.0, 50.0, random.Random(1))
        see.equal("varying_arrivals(rate, 3.0, 50.0, rng)", times, [])
    elif case.what == "generator":
        observe_generator(varying_arrivals, see)
    else:
        observe_limits(varying_arrivals, see)


def observe_curve(
    varying_arrivals: Any,
    rate: Callable[[float], float],
    peak: float,
    seconds: float,
    see: Observer,
) -> None:
    call = f"varying_arrivals(rate, {peak}, {seconds}, rng)"
    rng, runs, asked = random.Random(1), [], []

    def told(time: float) -> float:
        asked.append(time)
        return rate(time)

    for _ in range(RUNS):
        with see.call(call):
            times = varying_arrivals(told, peak, seconds, rng)
        right = isinstance(times, list) and all(isinstance(time, float) for time in times)
        see.require(call, right, "must return a list of times, which are floats")
        odd, problem = out_of_order(times, seconds)
        see.note(call, odd, problem)
        see.stop_if_wrong()
        runs.append(times)
        see.require(
            f"rate, in {len(runs)} calls of {call},",
            len(asked) <= len(runs) * (4 * peak * seconds + 40),
            f"was asked {len(asked):,} times",
            "Ask it at proposed times only.",
        )
    width = seconds / PARTS
    counts = [[0] * PARTS for _ in runs]
    for row, times in zip(counts, runs, strict=True):
        for time in times:
            row[min(PARTS - 1, int(time / width))] += 1
    ratios, errors = [], []
    for part in range(PARTS):
        here = [row[part] for row in counts]
        grid = [rate((part + (n + 0.5) / 200) * width) for n in range(200)]
        want = statistics.fmean(grid) * width
        span = f"from second {part * width:g} to {(part + 1) * width:g}"
        because = (
            f"The rate there is {want / width:.3g} per second on average. A gap drawn at the rate "
            "of its first moment reaches into times with another rate: propose times at the rate "
            "`peak`, and keep each with probability rate(time) / peak."
        )
        off = 5.5 * math.sqrt(max(want, 0.02) / RUNS)
        see.close(
            f"the mean number of requests {span}", statistics.fmean(here), want, because,
            rtol=0.0, atol=off,
        )  # fmt: skip
        because = "Counts of independent clients have a variance equal to their mean."
        spread = math.sqrt((want + 2 * want * want) / RUNS)
        see.close(
            f"the variance of the number of requests {span}", statistics.pvariance(here), want,
            because, rtol=0.0, atol=6.5 * spread + 0.05,
        )  # fmt: skip
        if want >= 1:
            ratios.append(statistics.pvariance(here) / want)
            errors.append((spread / want) ** 2)
    if ratios:
        see.close(
            "the variance of the number of requests over its mean, in parts with one or more,",
            statistics.fmean(ratios), 1.0, because, rtol=0.0,
            atol=6 * math.sqrt(sum(errors)) / len(ratios),
        )  # fmt: skip
    repeated = sum(map(len, runs)) - len({time for times in runs for time in times})
    any_time = "Requests come at any moment: draw the times, instead of placing them on a grid."
    see.true("the times of different calls", not repeated, "are the same", any_time)
    because = "What came before says nothing about what comes next."
    sums = [(sum(row[: PARTS // 2]), sum(row[PARTS // 2 :])) for row in counts]
    first, second = (statistics.fmean(pair[i] for pair in sums) for i in (0, 1))
    together = statistics.fmean((a - first) * (b - second) for a, b in sums)
    scale = math.sqrt(max(first * second, 1e-9))
    see.close(
        "the covariance of the two halves' counts, divided by their size,", together / scale, 0.0,
        because, rtol=0.0, atol=0.35,
    )  # fmt: skip


def out_of_order(times: list[float], seconds: float) -> tuple[str, str]:
    """What is wrong with times that should ascend from 0 to `seconds`: a word and a sentence."""
    for before, time in pairwise([-math.inf, *times]):
        if not 0 <= time < seconds:
            return "outside", f"returned {time:.4g}, expected times from 0 to {seconds:g}"
        if time <= before:
            return "order", f"returned {time:.4g} after {before:.4g}, expected ascending times"
    return "", ""


def observe_generator(varying_arrivals: Any, see: Observer) -> None:
    def drawn(rng: random.Random) -> Any:
        return varying_arrivals(steps, 8.0, 8.0, rng)

    with see.call("varying_arrivals(rate, 8.0, 8.0, random.Random(7))"):
        first = drawn(random.Random(7))
        random.seed(5)
        again = drawn(random.Random(7))
        rng = random.Random(7)
        one, other = drawn(rng), drawn(rng)
    what = "varying_arrivals(rate, 8.0, 8.0, random.Random(7)), called twice,"
    because = "With the same generator a benchmark can be repeated."
    see.true(what, first == again, "returned different times", because)
    what = "varying_arrivals(rate, 8.0, 8.0, rng), called twice with one generator,"
    see.true(
        what, one != other, "returned the same times", "The generator goes on from call to call."
    )


def observe_limits(varying_arrivals: Any, see: Observer) -> None:
    because = "peak must be above 0, and no rate below 0 or above peak."
    nan = math.nan  # neither above 0 nor below: every comparison with it is False
    for peak, at in (
        (0.0, 0.0), (-1.0, 0.0), (2.0, 2.5), (2.0, -0.5), (nan, 0.0), (2.0, nan)
    ):  # fmt: skip
        call = f"varying_arrivals(rate, {peak}, 100.0, rng), where rate(t) is {at},"
        run = partial(varying_arrivals, lambda time, at=at: at, peak, 100.0, random.Random(1))
        see.raises(call, ValueError, run, because)


def draw(varying_arrivals: Any) -> Any:
    """A made-up day of 24 seconds: little at night, two hills."""
    from yaie.bench.load import poisson_arrivals

    times = varying_arrivals(day, 9.0, 24.0, random.Random(4))
    mean = len(times) / 24
    even = [t for t in poisson_arrivals(mean, 2 * len(times), random.Random(4)) if t < 24]
    return viz.draw_arrivals({"the mean rate all day": even, "a day with two hills": times})


def day(time: float) -> float:
    """Requests per second at an hour: little at night, a hill at 11 and one at 20."""
    return 0.5 + 8 * math.exp(-((time - 11) ** 2) / 6) + 5 * math.exp(-((time - 20) ** 2) / 4)
