"""Lets requests come in pairs."""

EXPECT = "spread"


def poisson_arrivals(rate, count, rng):
    if rate <= 0 or count < 0:
        raise ValueError("rate must be above 0 and count at least 0")
    times, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate / 2) * (len(times) % 2)
        times.append(now)
    return times
