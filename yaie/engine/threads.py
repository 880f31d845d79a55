"""How long the threads of an operator wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads spin while they wait for the next parallel region, GNU's for milliseconds, in
    which another process's threads cannot compute. After about 20 microseconds they sleep here. To
    wake them takes longer than a small operator of torch, but a step in C++ is a single region.
    An environment that already says how threads wait is left as it is. Call it before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")
