"""Takes the first entry for the fewest clients."""

EXPECT = "The order of the entries says nothing"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    fewest = next(iter(rates))
    return max(rates.values()) * fewest / rates[fewest]
