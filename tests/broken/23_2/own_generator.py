"""Draws with a generator of its own."""

import random

EXPECT = "two results. Draw with"


def poisson_arrivals(rate, count, rng):
    if rate <= 0 or count < 0:
        raise ValueError("rate must be above 0 and count at least 0")
    times, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate)
        times.append(now)
    return times
