"""Counts all places that agree."""

EXPECT = "Only those before the first difference count"


def accept(draft, chosen):
    kept = [d for d, c in zip(draft, chosen, strict=False) if d == c]
    return [*kept, chosen[len(kept)]]
