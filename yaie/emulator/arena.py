"""Where a call's tensors lie while it runs: apart, so that a wrong index hits nothing else."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yaie.emulator import runtime
from yaie.emulator.elements import Memory
from yaie.emulator.signature import Launcher

LARGEST = 1 << 20  # bytes of a tensor's storage that are copied to another place for a plain call
_PAGE = mmap.PAGESIZE
_GUARD = 1 << 20  # bytes before and after each tensor that fault; they take no memory
_OWN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FILLING = b"\xa5" * 2 * _PAGE  # of the bytes of a page on either side of a tensor
_FAULT = runtime.KINDS.index("segmentation_fault")
_BEYOND = runtime.KINDS.index("out_of_bounds")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(frozen=True)
class Span:
    """Memory of one argument, or of several that overlap.

    Attributes:
        begin, end: addresses.
        names: of the arguments.
        item: bytes of an element; 0 if several arguments share the memory.
        constant: whether it is only read, as its parameters are declared.
    """

    begin: int
    end: int
    names: tuple[str, ...]
    item: int
    constant: bool

    def joined(self, other: Span) -> Span:
        return Span(
            min(self.begin, other.begin),
            max(self.end, other.end),
            (*self.names, *other.names),
            0,
            self.constant and other.constant,
        )


def spans(launcher: Launcher, arguments: Sequence[Any], whole: bool = False) -> list[Span]:
    """The memory of a call's tensors, in order; `whole`: that of their storages."""
    found = []
    for parameter, argument in zip(launcher.wanted, arguments, strict=True):
        if not parameter.pointer or argument is None:
            continue
        named = [(parameter.name, argument)]
        if parameter.table:
            named = [(f"{parameter.name}[{i}]", tensor) for i, tensor in enumerate(argument)]
        for name, tensor in named:
            place = tensor.untyped_storage() if whole else tensor
            begin, item = place.data_ptr(), tensor.element_size()
            size = place.nbytes() if whole else tensor.numel() * item
            if size:
                found.append(Span(begin, begin + size, (name,), item, parameter.constant))
    merged: list[Span] = []
    for span in sorted(found, key=lambda s: (s.begin, s.end)):
        if merged and span.begin < merged[-1].end:
            merged[-1] = merged[-1].joined(span)
        else:
            merged.append(span)
    return merged


def moved(argument: Any, places: Sequence[tuple[int, int, int]]) -> Any:
    """The address to which a tensor moved, None for an empty one; for a list the table of them.

    `places` has the old address, the bytes and the new address of each stretch. A tensor in none of
    them stays where it is.
    """
    if isinstance(argument, (list, tuple)):
        return (ctypes.c_void_p * len(argument))(*(moved(each, places) for each in argument))
    if not hasattr(argument, "data_ptr"):
        return argument
    pointer = argument.data_ptr()
    for original, size, here in places:
        if original <= pointer < original + size:
            return here + pointer - original
    return pointer if argument.numel() else None


class Guarded:
    """A call that is not checked, as a context: its tensors lie between pages that fault.

    Storages of more than `LARGEST` bytes stay where they are. What a kernel writes beyond the end
    of a tensor within its last page, or before its beginning within its first one, is found after
    the call.

    Attributes:
        arguments: what to call the launcher with.
    """

    def __init__(self, launcher: Launcher, arguments: Sequence[Any]) -> None:
        self._launcher = launcher
        self._given = arguments
        self._spans: list[Span] = []
        self._places: list[tuple[int, int, int]] = []  # original address, bytes, address here
        self._pages: list[tuple[int, int]] = []  # first and last address of each span's pages
        self._arena: mmap.mmap | None = None
        self.arguments: list[Any] = list(arguments)

    def __enter__(self) -> Guarded:
        found = spans(self._launcher, self._given, whole=True)
        self._spans = [span for span in found if span.end - span.begin <= LARGEST]
        if not self._spans:
            return self
        rooms = [_PAGE * (1 + (span.end - span.begin + 31) // _PAGE) for span in self._spans]
        self._arena = mmap.mmap(-1, sum(rooms) + _GUARD * (len(rooms) + 1), flags=_OWN)
        self._anchor = ctypes.c_char.from_buffer(self._arena)
        cursor = ctypes.addressof(self._anchor)
        _protect(cursor)
        for span, room in zip(self._spans, rooms, strict=True):
            size, first = span.end - span.begin, cursor + _GUARD
            last = first + room
            # As near to the end of the page as the alignment of 32 bytes lets it.
            place = last - size - (last - size - span.begin) % 32
            ctypes.memset(first, _FILLING[0], place - first)
            ctypes.memset(place + size, _FILLING[0], last - place - size)
            ctypes.memmove(place, span.begin, size)
            _protect(last)
            self._places.append((span.begin, size, place))
            self._pages.append((first, last))
            cursor = last
        self.arguments = [moved(argument, self._places) for argument in self._given]
        return self

    def __exit__(self, *_: object) -> None:
        for span, (original, size, here) in zip(self._spans, self._places, strict=True):
            if not span.constant:
                ctypes.memmove(original, here, size)
        if self._arena is not None:
            del self._anchor
            self._arena.close()

    def overrun(self) -> str:
        """Which tensor a kernel wrote beyond, in words; empty if none. Before the call is left."""
        for span, (_, size, here), (first, last) in zip(
            self._spans, self._places, self._pages, strict=True
        ):
            for begin, end, side in (
                (here + size, last, "past the end of"),
                (first, here, "before"),
            ):
                if ctypes.string_at(begin, end - begin) != _FILLING[: end - begin]:
                    return f"a kernel wrote {side} {' and '.join(span.names)} ({size:,} bytes)"
        return ""

    def explain(self, stopped: runtime.RawFailure | None) -> list[Memory]:
        """Name the tensor beyond which a kernel faulted; returns what the failure speaks of."""
        if stopped is None or stopped.kind != _FAULT:
            return []
        for span, (_, size, here), (first, last) in zip(
            self._spans, self._places, self._pages, strict=True
        ):
            if first - _GUARD <= stopped.address < last + _GUARD:
                stopped.kind, stopped.range, stopped.memory = _BEYOND, 0, 1
                stopped.offset = stopped.address - here
                return [Memory(" and ".join(span.names), size)]
        return []


def _protect(begin: int) -> None:
    """Make the guard that begins there fault when it is touched."""
    if _libc.mprotect(begin, _GUARD, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"mprotect: {os.strerror(number)}")
