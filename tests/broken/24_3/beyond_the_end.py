"""Does not stop at the end of the draft."""

EXPECT = "either may be short"


def accept(draft, chosen):
    agreeing = 0
    while draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    return [*draft[:agreeing], chosen[agreeing]]
