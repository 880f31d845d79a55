"""Returns what came."""

EXPECT = "Nothing was turned"


def apply_rotary(x, positions, cos, sin):
    return x.clone()
