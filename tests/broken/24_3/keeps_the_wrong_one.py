"""Keeps the drafted token at the first difference."""

EXPECT = "That keeps the drafted token that the model would not have chosen"


def accept(draft, chosen):
    agreeing = 0
    while agreeing < len(draft) and draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    if agreeing == len(draft):
        return [*draft, chosen[agreeing]]
    return list(draft[: agreeing + 1])
