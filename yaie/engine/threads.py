"""How long the threads of an operator wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads spin while they wait for the next operator, GNU's for about a millisecond.
    Meanwhile another process's threads cannot compute: two engines on two cores run at a ninth of
    their speed each. If the threads spin for about 20 microseconds, the two engines run at two
    fifths each, and one engine alone is as fast as before.
    An environment that already says how threads wait is left as it is. Call it before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")
