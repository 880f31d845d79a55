"""Takes the tokens out of the draft that it was given."""

EXPECT = "the arguments, afterwards"


def accept(draft, chosen):
    kept = []
    while draft and draft[0] == chosen[len(kept)]:
        kept.append(draft.pop(0))
    return [*kept, chosen[len(kept)]]
