"""Solution of exercise 29.3: Drafts that leave the distribution as it is.

A draft was verified, and tokens are sampled, not chosen greedily. You know the probabilities of
the drafter and of the model in each place. Decide how many drafted tokens are kept, and draw the
one token that follows them, so that the text is distributed exactly as if the model alone had
sampled it, and as many drafted tokens as possible are kept.

Generated from accept_sampled in yaie/course/lessons/speculative.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def accept_sampled(
    draft: Sequence[int],
    drafter: Sequence[Sequence[float]],
    model: Sequence[Sequence[float]],
    rng: random.Random,
) -> list[int]:
    """The tokens that a verified draft yields if tokens are sampled (Leviathan et al., 2023).

    The text that grows by them has exactly the distribution of one that is sampled from the model
    alone, whatever the drafter's probabilities are.

    Args:
        draft: the drafted tokens, each sampled from its row of `drafter`; there may be none.
        drafter: `[len(draft)][vocabulary]`, the probabilities that the drafter gave each token in
            each place.
        model: `[len(draft) + 1][vocabulary]`, those of the model: row 0 after the text, row i
            after the text and `draft[:i]`. Each row adds up to 1, as the drafter's do.
        rng: what to draw with.

    Returns:
        The tokens to append: the drafted ones up to the first that is rejected, and one more in its
        place, or after all of them, if all are accepted.
    """
    for place, token in enumerate(draft):
        guessed, wanted = drafter[place], model[place]
        if rng.random() * guessed[token] < wanted[token]:
            continue
        missing = [max(0.0, p - q) for p, q in zip(wanted, guessed, strict=True)]
        return [*draft[:place], *rng.choices(range(len(missing)), missing)]
    return [*draft, *rng.choices(range(len(model[-1])), model[-1])]
