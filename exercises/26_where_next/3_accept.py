"""Exercise 26.3: Accept what the model would have said.

A draft was verified in one pass: you know what the model chooses after the text, and after each
drafted token. Return the tokens to append, exactly those that the model would have written one by
one, and as many of them as are known.

In a terminal: yaie check 26.3, yaie hint 26.3, yaie reset 26.3.
"""

from __future__ import annotations

from collections.abc import Sequence


def accept(draft: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """The tokens that a verified draft yields.

    Args:
        draft: the drafted tokens, in order; there may be none.
        chosen: what the model chooses, one token more than `draft` has: `chosen[0]` follows the
            text, `chosen[i]` follows the text and `draft[:i]`.

    Returns:
        The tokens to append to the text, the same that the model would have found one by one: the
        drafted ones up to the first that the model would not have chosen, and then its own choice
        at that place. So there is always at least one, and one more than `draft` has if all of it
        was right.
    """
    raise NotImplementedError("Exercise 26.3: Accept what the model would have said")
