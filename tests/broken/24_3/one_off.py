"""Compares each drafted token with the choice behind it."""

EXPECT = "compare draft[i] with chosen[i]"


def accept(draft, chosen):
    agreeing = 0
    while agreeing < len(draft) and draft[agreeing] == chosen[agreeing + 1]:
        agreeing += 1
    return [*draft[:agreeing], chosen[agreeing]]
