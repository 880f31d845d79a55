"""From addresses in a running shared object to lines of the source it was compiled from."""

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from ctypes import c_char_p, c_void_p
from dataclasses import dataclass
from pathlib import Path

from yaie.emulator.compiler import INCLUDE

HEADERS = (".cuh", ".h", ".hpp")


@dataclass(frozen=True)
class Place:
    """A line of a file; line 0 is a place that is not known."""

    file: str
    line: int

    @property
    def header(self) -> str:
        """The name of the file if it is a header, else ""."""
        name = self.file.rpartition("/")[2]
        return name if name.endswith(HEADERS) else ""

    def __str__(self) -> str:
        if not self.line:
            return "an unknown line"
        return f"line {self.line}" + (f" of {self.header}" if self.header else "")


NOWHERE = Place("", 0)

_known: dict[Path, dict[int, Place]] = {}  # of each library, by return address


class Lines:
    """The lines of some return addresses, looked up together.

    Those of a library are kept: it stays where it is in this process, and the calls of a kernel
    have the same addresses again and again.
    """

    def __init__(self, library: Path, addresses: Iterable[int]) -> None:
        self._places = _known.setdefault(library, {})
        new = set(addresses) - self._places.keys()
        if not new or not shutil.which("addr2line"):
            return
        bases = {address: _base(address - 1, library) for address in new}
        inside = sorted(address for address in new if bases[address])
        if not inside:
            self._places.update(dict.fromkeys(new, NOWHERE))
            return
        # The instruction before a return address is the one that is meant.
        asked = [hex(address - 1 - bases[address]) for address in inside]
        done = subprocess.run(
            ["addr2line", "-a", "-i", "-e", str(library), *asked],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        groups = re.split(r"^0x[0-9a-f]+\n", done.stdout, flags=re.MULTILINE)[1:]
        found = [_first_of_the_learner(group.splitlines()) for group in groups]
        # Only now, so that a lookup that was interrupted is made again.
        self._places.update(
            {**dict.fromkeys(new, NOWHERE), **dict(zip(inside, found, strict=True))}
        )

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
    in_source = (place for place in places if not place.header)
    return next(in_source, places[0] if places else NOWHERE)


class _Loaded(ctypes.Structure):
    """dladdr's result: a shared object's path and base, the nearest symbol and its address."""

    _fields_ = [("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("at", c_void_p)]


def _base(address: int, library: Path) -> int:
    """The base address of a loaded shared object, or 0 if `address` lies outside it."""
    found = _Loaded()
    known = ctypes.CDLL(None).dladdr(c_void_p(address), ctypes.byref(found))
    return found.base or 0 if known and os.fsdecode(found.file) == str(library) else 0
