"""Exercise 25.2: People who do not know of each other.

Draw the times at which requests arrive if each client decides independently of the others, at a
given mean rate: a Poisson process. The docstring says how the times between arrivals are
distributed.

In a terminal: yaie check 25.2, yaie hint 25.2, yaie reset 25.2.
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
    raise NotImplementedError("Exercise 25.2: People who do not know of each other")
