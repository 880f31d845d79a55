"""From addresses in a running shared object to lines of the source it was compiled from."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from yaie.emulator.build import INCLUDE
from yaie.emulator.rewrite import SHARED_SUFFIX


@dataclass(frozen=True)
class Place:
    """A line of a file; line 0 is a place that is not known."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}" if self.line else "an unknown line"


NOWHERE = Place("", 0)
HEADERS = (".cuh", ".h", ".hpp")


class Lines:
    """The lines of some return addresses, looked up at once."""

    def __init__(self, library: Path, addresses: Iterable[int]) -> None:
        self._places: dict[int, Place] = {}
        base, end = _mapped(library)
        inside = sorted(a for a in addresses if base <= a - 1 < end)
        if not inside or not shutil.which("addr2line"):
            return
        # The instruction before a return address is the one that is meant.
        asked = [hex(address - 1 - base) for address in inside]
        done = subprocess.run(
            ["addr2line", "-a", "-i", "-e", str(library), *asked],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        groups = re.split(r"^0x[0-9a-f]+\n", done.stdout, flags=re.MULTILINE)[1:]
        for address, group in zip(inside, groups, strict=True):
            self._places[address] = _first_of_the_learner(group.splitlines())

    def place(self, address: int) -> Place:
        """The line of a return address that was given to the constructor."""
        return self._places.get(address, NOWHERE)


def _first_of_the_learner(frames: list[str]) -> Place:
    """The innermost frame in the source; if there is none, the innermost in a header of its own."""
    places = []
    for frame in frames:
        file, _, line = frame.partition(" (discriminator")[0].rpartition(":")
        if line.isdigit() and not file.startswith(str(INCLUDE)) and "/c++/" not in file:
            places.append(Place(file, int(line)))
    in_source = (place for place in places if Path(place.file).suffix not in HEADERS)
    return next(in_source, places[0] if places else NOWHERE)


def _mapped(library: Path) -> tuple[int, int]:
    """Where a loaded shared object lies in this process."""
    begin, end = 0, 0
    wanted = str(library.resolve())
    for row in Path("/proc/self/maps").read_text().splitlines():
        fields = row.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == wanted:
            low, high = (int(part, 16) for part in fields[0].split("-"))
            begin, end = begin or low, high
    return begin, end


@dataclass(frozen=True)
class SharedArray:
    """A `__shared__` variable of a compiled file: where it lies in the thread-local segment."""

    name: str
    kernel: str  # the function it stands in, "" if in none
    offset: int
    size: int


@lru_cache(maxsize=256)
def shared_arrays(library: Path) -> tuple[SharedArray, ...]:
    """Every `__shared__` variable of the file, from its symbol table."""
    done = subprocess.run(
        ["readelf", "--syms", "--wide", "--demangle", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {}
    for row in done.stdout.splitlines():
        match = re.match(r"\s*\d+:\s+([0-9a-f]+)\s+(\S+)\s+TLS\s+\S+\s+\S+\s+(\d+)\s+(.*)$", row)
        if not match or "shared_anchor" in match[4]:
            continue
        function, _, name = match[4].rpartition("::")
        name = re.sub(r"@.*$", "", name).removesuffix(SHARED_SUFFIX)
        bare = re.sub(r"\(.*$", "", function)
        while (shorter := re.sub(r"<[^<>]*>", "", bare)) != bare:
            bare = shorter
        kernel = bare.split()[-1].rpartition("::")[2] if bare else ""
        array = SharedArray(name, kernel, int(match[1], 16), int(match[2], 0))
        found[array.offset] = array
    return tuple(found.values())
