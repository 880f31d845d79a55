"""What a process leaves to others: processors while its threads wait, memory that it has freed."""

from __future__ import annotations

import ctypes
from collections.abc import MutableMapping


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads spin while they wait for the next parallel region, GNU's for milliseconds, in
    which another process's threads cannot compute. After about 20 microseconds they sleep here; a
    step in C++ wakes them once. An environment that says how threads wait is left as it is. Call it
    before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")


def return_freed_memory() -> None:
    """Return memory that has been freed to the system; C's allocator otherwise keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
