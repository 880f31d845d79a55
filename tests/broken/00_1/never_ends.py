"""Forgets to go on to the next token."""

EXPECT = "did not finish"


def shared_prefix_length(a, b):
    length = 0
    while length < min(len(a), len(b)):
        if a[length] != b[length]:
            break
    return length
