"""Takes the fewest clients to be one."""

EXPECT = "divide their rate by 4 first"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    fewest = min(rates)
    return max(rates.values()) / rates[fewest]
