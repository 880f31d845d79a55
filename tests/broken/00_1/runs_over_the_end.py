"""Takes the length of the first sequence for the length of both."""

EXPECT = "One of the two ends first"


def shared_prefix_length(a, b):
    length = 0
    while length < len(a) and a[length] == b[length]:
        length += 1
    return length
