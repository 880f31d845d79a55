"""Keeps what agrees, and nothing else."""

EXPECT = "the text would never grow"


def accept(draft, chosen):
    agreeing = 0
    while agreeing < len(draft) and draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    return list(draft[:agreeing])
