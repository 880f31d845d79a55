"""Sends a request every 1 / rate seconds."""

EXPECT = "all gaps are the same"


def poisson_arrivals(rate, count, rng):
    if rate <= 0 or count < 0:
        raise ValueError("rate must be above 0 and count at least 0")
    times, now = [], 0.0
    for _ in range(count):
        now += 1 / rate
        times.append(now)
    return times
