"""How long the threads of an operator wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads wait for the next operator in a loop, GNU's for about a millisecond, in which
    another process's threads cannot compute: two engines on two cores had a ninth of their speed
    each. With about 20 microseconds they have two fifths each, and one alone is as fast as before.
    An environment that already says how threads wait is left as it is. Call it before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")
