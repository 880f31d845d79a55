"""Seeds a generator of its own, the same each time."""

import random

EXPECT = "gave the same times"


def poisson_arrivals(rate, count, rng):
    if rate <= 0 or count < 0:
        raise ValueError("rate must be above 0 and count at least 0")
    times, now, rng = [], 0.0, random.Random(0)
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times
