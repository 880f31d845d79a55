"""Solution of exercise 28.2: Arrivals of a whole day.

Independent clients send more requests at noon than at night: their mean rate is a function of the
time. Draw the times at which requests arrive in `seconds` seconds, if rate(t) per second arrive
around time t. Only `rng` may decide; the same generator gives the same times.

Generated from varying_arrivals in yaie/course/lessons/load.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import random
from collections.abc import Callable


def varying_arrivals(
    rate: Callable[[float], float], peak: float, seconds: float, rng: random.Random
) -> list[float]:
    """The times at which independent clients send requests while their mean rate changes.

    They are a Poisson process whose rate is rate(time) at each time.

    Args:
        rate: requests per second at a time, from 0 to `peak`. It may jump, and asking it costs
            something: about `peak * seconds` questions are enough.
        peak: the highest rate, above 0.
        seconds: how long requests are sent.
        rng: what to draw with.

    Returns:
        Ascending times from 0 to `seconds`; there may be none.

    Raises:
        ValueError: `peak` is not above 0, or a rate that is asked for is below 0 or above `peak`.
    """
    if not peak > 0:
        raise ValueError(f"peak must be above 0, got {peak}")
    # Thinning (Lewis and Shedler, 1979): a process of rate `peak` proposes times, and each is kept
    # with probability rate(time) / peak.
    times, now = [], 0.0
    while (now := now + rng.expovariate(peak)) < seconds:
        at = rate(now)
        if not 0 <= at <= peak:
            raise ValueError(f"rate({now}) must be from 0 to peak, which is {peak}, got {at}")
        if rng.random() * peak < at:
            times.append(now)
    return times
