"""Ways to build a kernel, and which of them fits a situation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """A way from a `.cu` file to a function.

    Attributes:
        seconds: that building takes, from an empty cache.
        first_call: seconds that the first call on a user's machine waits for it.
        needs_nvcc: whether that machine needs nvcc.
        launcher: whether host code is built too, not device code alone.
        operator: whether the file registers an operator by itself, which a C++ program finds.
        cards: the compute capabilities that the result runs on; None: the card that is there.
    """

    name: str
    seconds: float
    first_call: float
    needs_nvcc: bool
    launcher: bool = True
    operator: bool = False
    cards: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Situation:
    """Where a kernel is to run, and what for.

    Attributes:
        has_nvcc: whether the machine that runs it has nvcc.
        cards: the compute capabilities of the GPUs that it must run on.
        needs_launcher: whether the source has host code that must be kept.
        needs_operator: whether a C++ program without Python calls it as an operator of torch.
        edits: how often the source is changed and built again before it is done.
        starts: how often a user starts a program that calls it, each from an empty cache.
    """

    has_nvcc: bool = True
    cards: frozenset[tuple[int, int]] = frozenset({(9, 0)})
    needs_launcher: bool = True
    needs_operator: bool = False
    edits: int = 0
    starts: int = 0


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
