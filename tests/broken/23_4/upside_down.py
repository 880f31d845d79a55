"""Multiplies where it should divide."""

EXPECT = "the rate is 1 / time"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    fewest = min(rates)
    return max(rates.values()) * rates[fewest] / fewest
