"""How long the threads of an operator wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads wait for the next operator in a loop, GNU's for about a millisecond. Meanwhile
    another process's threads cannot compute: on two cores, two engines had a ninth of their speed
    each. With a loop of about 20 microseconds they have two fifths each, and one alone is as fast
    as before. An environment that already says how threads wait is left as it is.

    It has an effect only before torch is loaded.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")
