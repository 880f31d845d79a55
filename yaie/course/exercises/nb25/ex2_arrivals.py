"""25.2: when requests come, if their senders do not know of each other."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer


def cases() -> Iterator[Case]:
    yield Case("", what="gaps", rate=5.0, count=4000)
    yield Case("", what="generator")
    for rate in (0.1, 300.0):
        yield Case("", what="rate", rate=rate, count=2000)
    yield Case("", what="limits")


def observe(poisson_arrivals: Any, case: Case, see: Observer) -> None:
    if case.what == "generator":
        observe_generator(poisson_arrivals, see)
    elif case.what == "limits":
        observe_limits(poisson_arrivals, see)
    else:
        times = arrivals(poisson_arrivals, case, see)
        if case.what == "gaps":
            observe_gaps(times, case.rate, see)
        else:
            came = case.count / times[-1] if times[-1] else 0.0
            see.close(f"the number of requests per second at rate {case.rate}", came, case.rate,
                      f"{case.count:,} requests came.", rtol=0.1, atol=0.0)  # fmt: skip


def arrivals(poisson_arrivals: Any, case: Case, see: Observer) -> list[float]:
    call = f"poisson_arrivals({case.rate}, {case.count}, rng)"
    with see.call(call):
        times = poisson_arrivals(case.rate, case.count, random.Random(1))
    right = isinstance(times, list) and len(times) == case.count
    see.require(call, right, f"must return a list of {case.count:,} times")
    return times


def observe_gaps(times: list[float], rate: float, see: Observer) -> None:
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    see.require("the times", min(gaps) >= 0, "do not ascend", "Each follows the one before.")
    mean = statistics.fmean(gaps)
    because = f"{rate:g} requests per second are {1 / rate:g} s apart on average."
    if not see.close("the mean gap", mean, 1 / rate, because, rtol=0.1, atol=0.0) and not mean:
        see.stop()
    see.true("the first time", gaps[0] > 0, "is 0", "The time from the start to it is a gap, too.")
    spread = statistics.pstdev(gaps) / mean
    because = "The standard deviation of an exponential distribution is its mean."
    see.close("the standard deviation of the gaps, divided by their mean,", spread, 1.0, because,
              rtol=0.1, atol=0.0)  # fmt: skip
    together = statistics.fmean((a - mean) * (b - mean) for a, b in pairwise(gaps)) / mean**2
    because = "A gap says nothing about the next one if each is drawn anew."
    see.close("the covariance of neighboring gaps, divided by the squared mean,", together, 0.0,
              because, rtol=0.0, atol=0.1)  # fmt: skip
    bins = [0] * max(2, int(times[-1]))
    for time in times:
        if time < len(bins):
            bins[int(time)] += 1
    ratio = statistics.pvariance(bins) / max(statistics.fmean(bins), 1e-9)
    because = "The arrivals per second of independent clients have a variance equal to their mean."
    see.close("the variance of the arrivals per second, divided by their mean,", ratio, 1.0,
              because, rtol=0.2, atol=0.0)  # fmt: skip


def observe_generator(poisson_arrivals: Any, see: Observer) -> None:
    with see.call("poisson_arrivals(2.0, 20, random.Random(7))"):
        first = poisson_arrivals(2.0, 20, random.Random(7))
        random.seed(5)
        again = poisson_arrivals(2.0, 20, random.Random(7))
        rng = random.Random(7)
        one, other = poisson_arrivals(2.0, 20, rng), poisson_arrivals(2.0, 20, rng)
    same = "With the same generator a benchmark can be repeated."
    what = "poisson_arrivals(2.0, 20, random.Random(7)), called twice,"
    see.true(what, first == again, "returned different times", same)
    goes_on = "The generator goes on from call to call."
    what = "poisson_arrivals(2.0, 20, rng), called twice with one generator,"
    see.true(what, one != other, "returned the same times", goes_on)


def observe_limits(poisson_arrivals: Any, see: Observer) -> None:
    with see.call("poisson_arrivals(5.0, 0, rng)"):
        none = poisson_arrivals(5.0, 0, random.Random(1))
    see.equal("poisson_arrivals(5.0, 0, rng)", none, [])
    for rate, count in ((0.0, 3), (-1.0, 3), (1.0, -1)):
        call = f"poisson_arrivals({rate}, {count}, rng)"
        run = partial(poisson_arrivals, rate, count, random.Random(1))
        see.raises(call, ValueError, run, "rate must be above 0, and count at least 0.")


def draw(poisson_arrivals: Any) -> Any:
    times = {
        "evenly": [number / 4 for number in range(1, 61)],
        "independently": poisson_arrivals(4.0, 60, random.Random(20)),
    }
    return viz.draw_arrivals(times)
