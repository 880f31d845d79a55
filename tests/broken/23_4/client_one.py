"""Looks up the rate of one client."""

EXPECT = "The fewest clients need not be 1"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    return max(rates.values()) / rates[1]
