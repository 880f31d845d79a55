"""Takes any rate."""

EXPECT = "poisson_arrivals(-1.0"


def poisson_arrivals(rate, count, rng):
    if rate == 0 or count < 0:
        raise ValueError("rate must not be 0")
    times, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times
