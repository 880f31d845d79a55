"""The `__shared__` arrays of a compiled file: their names, places and sizes."""

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from yaie.emulator.rewrite import SHARED_SUFFIX
from yaie.emulator.text import hide

MOST_STATIC = 48 * 1024  # bytes that the static arrays of a kernel may have in all


@dataclass(frozen=True)
class SharedArray:
    """A `__shared__` variable of a compiled file: where it lies in the thread-local segment."""

    name: str
    function: str  # that it stands in, with its template arguments; "" if in none
    kernel: str  # the name of that function alone
    offset: int
    size: int


def shared_arrays(library: Path, checked: bool) -> tuple[SharedArray, ...]:
    """Every `__shared__` variable of the file, from its symbol table.

    One in a function is a `Guarded` of include/emulator/launch.h: twice its size in checked mode.
    """
    done = subprocess.run(
        ["readelf", "--syms", "--wide", "--demangle", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {}
    for row in done.stdout.splitlines():
        match = re.match(r"\s*\d+:\s+([0-9a-f]+)\s+(\S+)\s+TLS\s+\S+\s+\S+\s+(\d+)\s+(.*)$", row)
        if not match or re.search("shared_anchor|_TLS_MODULE_BASE_", match[4]):
            continue  # with the latter, arm64's linker marks the segment's beginning
        function, _, name = match[4].rpartition("::")
        name = re.sub(r"@.*$", "", name)
        size = int(match[2], 0) // (2 if checked and name.endswith(SHARED_SUFFIX) else 1)
        bare = re.sub(r"\(.*$", "", function)
        while (shorter := re.sub(r"<[^<>]*>", "", bare)) != bare:
            bare = shorter
        kernel = bare.split()[-1].rpartition("::")[2] if bare else ""
        name = name.removesuffix(SHARED_SUFFIX)
        array = SharedArray(name, function, kernel, int(match[1], 16), size)
        found[array.offset] = array
    return tuple(found.values())


def static_bytes(arrays: tuple[SharedArray, ...]) -> dict[str, int]:
    """The bytes of each kernel; of a template's, the least that one of its instances has."""
    functions: dict[tuple[str, str], int] = defaultdict(int)
    for array in arrays:
        functions[array.kernel, array.function] += array.size
    least: dict[str, int] = {}
    for (kernel, _), size in functions.items():
        least[kernel] = min(size, least.get(kernel, size))
    return least


def too_much(arrays: tuple[SharedArray, ...], source: str, path: Path) -> str | None:
    """What a compiler would say of a kernel with more static shared memory than there may be."""
    functions: dict[str, list[SharedArray]] = defaultdict(list)
    for array in arrays:
        functions[array.function].append(array)
    for found in functions.values():
        size = sum(array.size for array in found)
        if size > MOST_STATIC:
            largest = max(found, key=lambda array: array.size)
            hidden = hide(source)
            declared = re.search(rf"\b__shared__\b[^;]*\b{largest.name}\b", hidden)
            line = f":{hidden.count(chr(10), 0, declared.start()) + 1}" if declared else ""
            return (
                f"{path}{line}: error: {largest.kernel} has {size:,} bytes of static __shared__ "
                f"memory, but at most {MOST_STATIC:,} may be; more has to be dynamic, an "
                "extern __shared__ array whose size the launch gives"
            )
    return None
