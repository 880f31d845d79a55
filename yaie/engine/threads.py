"""What a process leaves to others: processors while its threads wait, memory that it has freed."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import MutableMapping
from pathlib import Path


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads spin while they wait for the next parallel region, GNU's for milliseconds, in
    which another process's threads cannot compute. After about 20 microseconds they sleep here. To
    wake them takes longer than a small operator of torch, but a step in C++ is a single region.
    An environment that already says how threads wait is left as it is. Call it before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")


def return_freed_memory() -> None:
    """Give the system back what loading a model has freed, which C's allocator otherwise keeps, and
    the code of libraries: what is run again comes back from the cache of their files."""
    libc, maps = ctypes.CDLL(None), Path("/proc/self/maps")
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
    for line in maps.read_text().splitlines() if maps.exists() else ():
        span, access, *_, name = line.split(maxsplit=5)
        if access == "r-xp" and ".so" in name:
            start, end = (int(place, 16) for place in span.split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)
