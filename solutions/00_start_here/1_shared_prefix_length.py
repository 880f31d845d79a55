"""Solution of exercise 00.1: Count the tokens that two prompts share.

Two prompts arrive as lists of token ids. Return how many tokens they have in common at their
start: what was computed for those need not be computed again.

Generated from shared_prefix_length in yaie/engine/radix.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Sequence


def shared_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the leading tokens that two sequences have in common.

    >>> shared_prefix_length([5, 8, 13], [5, 8, 21, 34])
    2
    """
    length = 0
    for token_a, token_b in zip(a, b, strict=False):
        if token_a != token_b:
            break
        length += 1
    return length
