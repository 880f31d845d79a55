"""Solution of exercise 25.2: People who do not know of each other.

Draw the times at which requests arrive if each client decides independently of the others, at a
given mean rate: a Poisson process. The docstring says how the times between arrivals are
distributed.

Generated from poisson_arrivals in yaie/bench/load.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import random


def poisson_arrivals(rate: float, count: int, rng: random.Random) -> list[float]:
    """The times at which the requests of many independent clients arrive: a Poisson process.

    Args:
        rate: mean number of requests per second.
        count: how many arrive.
        rng: what to draw with.

    Returns:
        `count` ascending times in seconds after the start. From the start to the first, and from
        each to the next, is a time of its own, drawn from the exponential distribution whose mean
        is 1 / rate.

    Raises:
        ValueError: `rate` is not above 0, or `count` is below 0.
    """
    if not rate > 0:
        raise ValueError(f"rate must be above 0, got {rate}")
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    times, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times
