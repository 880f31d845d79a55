"""What a process leaves to others: processors while its threads wait, memory that it has freed."""

import ctypes
import mmap
import re
from collections.abc import MutableMapping
from pathlib import Path


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Let processes that start with this environment share the processors.

    OpenMP's threads spin while they wait for the next parallel region, GNU's for milliseconds, and
    keep others from the processors. Here they sleep after some 20 microseconds; a step in C++ wakes
    them once. If the environment says how threads wait, it stays. Call this before torch loads.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "5000")


def return_freed_memory(libraries: bool = False) -> None:
    """Return to the system freed memory, which C's allocator otherwise keeps, and unchanged pages
    of `libraries`: most of them only starting has read, the others are loaded again when needed.
    No thread may load a library meanwhile."""
    libc, maps = ctypes.CDLL(None), Path("/proc/self/smaps")
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
    found = maps.read_text(errors="replace") if libraries and maps.exists() else ""
    for about in filter(None, re.split(r"\n(?=\w+-)", found)):
        span, access, *_, name = about.split("\n")[0].split()
        changed = re.search(r"^(Anonymous|Swap): +[1-9]", about, re.MULTILINE)
        if ".so" in name and "w" not in access and not changed:
            first, end = (int(address, 16) for address in span.split("-"))
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)
