"""Solution of exercise 22.2: Which way to build a kernel.

Choose a way to build a kernel for a situation: first rule out the ways that do not fit it, then
take the one with the shortest total wait. The docstring has the rules; the seconds are those that
the notebook shows.

Generated from choose_way in yaie/course/lessons/ways.py.
Edit it there, and run `python -m yaie.course build`.
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
    fitting = [
        way for way in ways
        if (situation.has_nvcc or not way.needs_nvcc)
        and (way.launcher or not situation.needs_launcher)
        and (way.operator or not situation.needs_operator)
        and (way.cards is None or situation.cards <= way.cards)
    ]  # fmt: skip

    def wait(way: Way) -> float:
        return situation.edits * way.seconds + situation.starts * way.first_call

    return min(fitting, key=wait).name if fitting else None
