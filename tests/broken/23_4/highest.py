"""Returns the number of clients with the highest rate."""

EXPECT = "That is where the rate is highest"


def knee(rates):
    if not rates:
        raise ValueError("rates must hold at least one rate")
    return max(rates, key=rates.get)
