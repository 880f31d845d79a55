"""Takes the last rate for the level."""

EXPECT = "not the last one"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    fewest = min(rates)
    return rates[max(rates)] * fewest / rates[fewest]
