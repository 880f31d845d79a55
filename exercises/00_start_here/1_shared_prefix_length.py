"""Exercise 00.1: Count the tokens that two prompts share.

Two prompts arrive as lists of token ids. Return how many tokens they have in common at their
start: what was computed for those need not be computed again.

You have
- `a`, `b`: sequences of ints, such as lists of token ids; either may be empty
- `zip(a, b)`: gives pairs of elements, as many as the shorter sequence has

In a terminal: yaie check 00.1, yaie hint 00.1, yaie reset 00.1.
"""

from __future__ import annotations

from collections.abc import Sequence


def shared_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the leading tokens that two sequences have in common.

    >>> shared_prefix_length([5, 8, 13], [5, 8, 21, 34])
    2
    """
    raise NotImplementedError("Exercise 00.1: Count the tokens that two prompts share")
