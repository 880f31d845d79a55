"""Exercise 22.2: Which way to build a kernel.

Choose a way to build a kernel for a situation: first rule out the ways that do not fit it, then
take the one with the shortest total wait. The docstring has the rules; the seconds are those that
the notebook shows.

You have
- `ways`: a list of `Way(name, seconds, first_call, needs_nvcc, launcher, operator, cards)`
- `situation`: a `Situation(has_nvcc, cards, needs_launcher, needs_operator, edits, starts)`
- `cards`: sets of compute capabilities such as `{(7, 5), (9, 0)}`; a way's may be None

In a terminal: yaie check 22.2, yaie hint 22.2, yaie reset 22.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.course.lessons.ways import Situation, Way


def choose_way(ways: Sequence[Way], situation: Situation) -> str | None:
    """The name of the way that fits a situation with the shortest wait; None if none fits.

    A way fits if all of these hold:

    - it needs no nvcc where the kernel runs, or there is one;
    - it builds a launcher, which is host code, or none is needed;
    - it registers an operator by itself, or none is needed (for torch.compile in Python any way
      will do: `torch.library` registers whatever can be called);
    - every card of the situation is among its `cards`, or these are None.

    The wait is `edits` times its `seconds`, and `starts` times its `first_call`. Of two ways with
    the same wait the first is returned.
    """
    raise NotImplementedError("Exercise 22.2: Which way to build a kernel")
