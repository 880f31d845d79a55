"""Appends the model's last choice in place of the first that differs."""

EXPECT = "The last of `chosen` follows the whole draft"


def accept(draft, chosen):
    agreeing = 0
    while agreeing < len(draft) and draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    return [*draft[:agreeing], chosen[-1]]
