"""Returns only inside the loop, so that a sequence that is a prefix of the other gives None."""

EXPECT = "reach its end without `return`"


def shared_prefix_length(a, b):
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
