"""Counts tokens that occur in both sequences, wherever they stand."""

EXPECT = "Tokens count by position"


def shared_prefix_length(a, b):
    return len(set(a) & set(b))
