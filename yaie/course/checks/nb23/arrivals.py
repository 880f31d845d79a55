"""The check of poisson_arrivals, and the picture of two kinds of arrivals."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise
from typing import Any

from yaie.course.core.expect import equal, fail, given, raises, true

RATE, COUNT = 5.0, 4000


def check_arrivals(poisson_arrivals: Any) -> None:
    what = f"poisson_arrivals({RATE}, {COUNT}, rng)"
    with given(what):
        times = poisson_arrivals(RATE, COUNT, random.Random(1))
    true(
        isinstance(times, list) and len(times) == COUNT,
        f"{what}: it must return a list of {COUNT} times.",
    )
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    if min(gaps) < 0:
        fail(
            f"{what}: the times must ascend. If each is drawn by itself, they are gaps: add "
            "them up."
        )
    mean_and_spread(gaps, what)
    independence(gaps, times, what)
    same_generator(poisson_arrivals)
    other_rates(poisson_arrivals)
    with given("poisson_arrivals(5.0, 0, rng)"):
        equal(poisson_arrivals(RATE, 0, random.Random(1)), [], "poisson_arrivals(5.0, 0, rng)")
    for rate in (0.0, -1.0):
        raises(
            ValueError,
            lambda r=rate: poisson_arrivals(r, 3, random.Random(1)),
            f"poisson_arrivals({rate}, 3, rng)",
        )
    raises(
        ValueError,
        lambda: poisson_arrivals(1.0, -1, random.Random(1)),
        "poisson_arrivals(1.0, -1, rng)",
    )


def mean_and_spread(gaps: list[float], what: str) -> None:
    mean, spread = statistics.fmean(gaps), statistics.pstdev(gaps)
    if not 0.9 < mean * RATE < 1.1:
        slow = 0.9 < mean / RATE < 1.1
        fail(
            f"{what}: the gaps are {mean:.3g} s in the mean; {RATE:g} requests a second are "
            f"{1 / RATE:g} s apart."
            + (" `expovariate` takes 1 / mean, which is the rate itself." if slow else "")
        )
    if spread < 0.01 * mean:
        fail(
            f"{what}: all gaps are the same. A server never meets such clients: nobody ever waits "
            "behind somebody else."
        )
    if not 0.9 < spread / mean < 1.1:
        uniform = 0.5 < spread / mean < 0.65
        fail(
            f"{what}: the gaps spread by {spread / mean:.2f} of their mean; those of a Poisson "
            "process by 1."
            + (" Uniform gaps know no crowds: draw them with `expovariate`." if uniform else "")
        )


def independence(gaps: list[float], times: list[float], what: str) -> None:
    mean = statistics.fmean(gaps)
    true(
        gaps[0] > 0,
        f"{what}: the first request comes at 0. From the start to it is a gap, too.",
    )
    together = statistics.fmean((a - mean) * (b - mean) for a, b in pairwise(gaps))
    if abs(together) > 0.1 * mean**2:
        fail(f"{what}: a gap tells something about the next one. Draw each anew.")
    span = times[-1]
    bins = [0] * int(span)
    for time in times:
        if time < len(bins):
            bins[int(time)] += 1
    ratio = statistics.pvariance(bins) / statistics.fmean(bins)
    if not 0.8 < ratio < 1.25:
        fail(
            f"{what}: the arrivals of a second vary {ratio:.2f} times as much as their mean; of "
            "independent people the variance is the mean."
        )


def same_generator(poisson_arrivals: Any) -> None:
    what = "poisson_arrivals(2.0, 20, random.Random(7)), called twice"
    with given(what):
        first = poisson_arrivals(2.0, 20, random.Random(7))
        random.seed(5)
        second = poisson_arrivals(2.0, 20, random.Random(7))
    true(
        first == second,
        f"{what}: two results. Draw with `rng`, so that a benchmark can be repeated.",
    )
    rng = random.Random(7)
    with given(what):
        first, second = poisson_arrivals(2.0, 20, rng), poisson_arrivals(2.0, 20, rng)
    true(
        first != second,
        "Two calls with one generator gave the same times: draw with the one that is given.",
    )


def other_rates(poisson_arrivals: Any) -> None:
    for rate in (0.1, 300.0):
        what = f"poisson_arrivals({rate}, 2000, rng)"
        with given(what):
            times = poisson_arrivals(rate, 2000, random.Random(3))
        got = 2000 / times[-1]
        true(0.9 < got / rate < 1.1, f"{what}: {got:.3g} requests a second came.")


def draw_arrivals(poisson_arrivals: Any) -> Any:
    from yaie.course import viz

    times = {
        "evenly": [number / 4 for number in range(1, 61)],
        "each alone": poisson_arrivals(4.0, 60, random.Random(20)),
    }
    return viz.draw_arrivals(times)
