"""Goes on counting equal tokens after the first difference."""

EXPECT = "equal after the first difference do not count"


def shared_prefix_length(a, b):
    return sum(x == y for x, y in zip(a, b, strict=False))
