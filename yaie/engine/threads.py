"""How long the threads of an operator wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that begin with this environment, and two of them at once, share processors.

    OpenMP's threads wait for the next operator by turning in a loop, GNU's for about a millisecond.
    While they turn, another process's threads cannot compute: on two cores, two engines at once had
    a ninth of their speed each. With a loop of some 20 microseconds they have two fifths each, and
    one alone is as fast as ever. Whoever has chosen how threads wait keeps that.

    It counts for a process only if it is called before torch is loaded.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")
