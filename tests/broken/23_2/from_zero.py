"""Sends the first request at once."""

EXPECT = "the first request comes at 0"


def poisson_arrivals(rate, count, rng):
    if rate <= 0 or count < 0:
        raise ValueError("rate must be above 0 and count at least 0")
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        now += rng.expovariate(rate)
    return times
