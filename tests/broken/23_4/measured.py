"""Returns the smallest measured number at which the level is nearly reached."""

EXPECT = "That is a number that was measured"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    most = max(rates.values())
    return min(n for n in rates if rates[n] > 0.6 * most)
