"""Compiled kernels as Python functions that take CPU tensors."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie.build.cache import Built
from yaie.emulator import runtime
from yaie.emulator.advice import no_launcher
from yaie.emulator.arena import Guarded, moved, spans
from yaie.emulator.build import build
from yaie.emulator.checks import Report, describe, make_report
from yaie.emulator.compiler import workers
from yaie.emulator.elements import Memory
from yaie.emulator.empty import looks_for_unwritten
from yaie.emulator.lines import Lines
from yaie.emulator.rewrite import rewrite
from yaie.emulator.shared import SharedArray, shared_arrays, static_bytes
from yaie.emulator.signature import Launcher, check_arguments, find_launchers
from yaie.emulator.text import hide

GAP = 1 << 20  # unused bytes between two arguments
EDGE = 1 << 23  # before the first and after the last
# Of the last checked calls: their addresses stay taken, so a pointer that was kept leads nowhere.
_past_arenas: deque[mmap.mmap] = deque(maxlen=16)
_one_call = threading.Lock()  # the runtime keeps the failures and findings of one call
_forked_in_a_call = False
# Per kernels of a source and launcher: what the last module with these launched at its first call.
_first_launches: dict[tuple[tuple[str, ...], str], str] = {}
# Variables on the device, and static ones on the host: libraries of one file would not share them.
_VARIABLE = re.compile(
    r"\b(?:__(?:device|constant|managed)__|static\s+(?!const|inline|__shared__))[^;(){}]*[;={]"
)
ALIGNMENT = 512  # as cudaMalloc gives it


class KernelError(RuntimeError):
    """A kernel crashed, hung, failed an assertion, or its launch was refused."""


def _after_fork() -> None:
    """In the child: if a call was under way, in a thread that the child has not, it never ends."""
    global _one_call, _forked_in_a_call
    _forked_in_a_call |= _one_call.locked()
    _one_call = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _instances_of(launches: Collection[int]) -> str:
    """The condition in C++ that a kernel is one of these launches."""
    return " || ".join(f"number_of(name) == {number}u" for number in sorted(launches))


def _left_out(stopped: runtime.RawFailure | None) -> bool:
    """Whether a call has ended at a launch whose kernel was not compiled."""
    return stopped is not None and runtime.KINDS[stopped.kind] == "left_out"


@dataclass(frozen=True)
class Library:
    """A shared object in this process, of a whole file or of one launcher."""

    built: Built
    loaded: ctypes.CDLL
    shared_arrays: tuple[SharedArray, ...]
    static: dict[str, int]  # bytes of static shared memory, by kernel


class Module:
    """The launchers of one `.cu` file, for CPU tensors: `module.name(tensor, ..., number)`.

    Args:
        apart: compile each launcher alone. The first call compiles its launcher; the first call of
            a second launcher compiles it and those for its other dtypes in parallel. A file of
            which one is called is ready sooner, but each has its own `__device__` and `static`
            variables. In checked mode, if the file has none and another module has called the same
            launcher, only the kernel instances that it launches are compiled, first those of its
            first call there. Where one is missing, the launcher is compiled and called again.

    Attributes:
        report: of the last call, if the module was loaded with `checked=True`.
        built: the whole file, compiled; None if launchers are compiled apart.
    """

    def __init__(
        self,
        source: str,
        path: str | Path,
        checked: bool = False,
        apart: bool = False,
    ) -> None:
        self.path = Path(path)
        self.source = source
        self.checked = checked
        self.report: Report | None = None
        self._launchers = find_launchers(source)
        if not self._launchers:
            raise ValueError(f"{path} {no_launcher(source)}")
        self._rewritten = rewrite(source, path, checked)
        self.kernels = self._rewritten.kernels
        self._libraries: dict[str, Library] = {}  # by launcher
        self._called: set[str] = set()
        self._selects = apart and checked and not _VARIABLE.search(hide(source))
        self.built: Built | None = None
        if not apart:
            whole = self._load("")
            self._libraries, self.built = dict.fromkeys(self._launchers, whole), whole.built

    def __getattr__(self, name: str) -> Any:
        launchers = self.__dict__.get("_launchers", {})
        if name not in launchers:
            source = self.__dict__.get("source", "")
            raise AttributeError(f"{self.__dict__.get('path')} {no_launcher(source, name)}")
        return lambda *arguments: self._check_and_call(launchers[name], arguments)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._launchers})

    def prepare(self, name: str, launches: str = "") -> None:
        """Compile a launcher before its first call.

        Args:
            launches: of a kernel with many instances, the arguments of those templates that are
                expected to be launched, "N = 4; N = 8, WIDE = true"; by default, all are compiled.
        """
        parts = [[part.strip() for part in one.split(",")] for one in launches.split(";") if one]
        each = [" && ".join(f'contains(name, "{part}")' for part in one) for one in parts]
        self._libraries[name] = self._load(name, " || ".join(each))

    def _library(self, name: str) -> Library:
        """The library that holds a launcher, compiled if need be."""
        if name not in self._libraries:
            stem = name.rpartition("_")[0]  # without the dtype
            others = [n for n in self._launchers if n.rpartition("_")[0] == stem]
            loaded = self._libraries.keys() & others
            wanted = [n for n in others if n not in loaded] if loaded else [name]
            with workers() as pool:
                self._libraries.update(zip(wanted, pool.map(self._load, wanted), strict=True))
        return self._libraries[name]

    def _load(self, launcher: str, instances: str = "") -> Library:
        first = _first_launches.get((self.kernels, launcher), "")
        instances = (instances or first) if self._selects else ""
        code = self._rewritten.code
        built = build(self.source, self.path, self.checked, launcher, instances, code)
        needed = runtime.checker if self.checked else runtime.library
        needed()  # before the kernels
        both = re.search(r"\bextern\s[^;]*__shared__", self.source)  # static and dynamic
        arrays = shared_arrays(built.path, self.checked) if self.checked or both else ()
        return Library(built, ctypes.CDLL(str(built.path)), arrays, static_bytes(arrays))

    def _check_and_call(self, launcher: Launcher, arguments: Sequence[Any]) -> None:
        device = check_arguments(launcher, arguments)
        if device is not None and device.type != "cpu":
            raise TypeError(f"{launcher.name}(): tensors must be on the CPU, got {device}")
        self.call(launcher, arguments)

    def call(self, launcher: Launcher, arguments: Sequence[Any]) -> None:
        """Call a launcher with arguments that `check_arguments` has passed."""
        if _forked_in_a_call:
            raise KernelError(
                f"{launcher.name}: this process was forked while another thread ran a kernel, and "
                'cannot run any; start processes with multiprocessing\'s "spawn", or before kernels'
            )
        library = self._library(launcher.name)
        while True:
            with _one_call:
                error, stopped, memories = self._run(library, launcher, arguments)
                refused = runtime.refusal() if error else None
                launches = runtime.launches()
            if not _left_out(stopped):
                break
            library = self._load(launcher.name, _instances_of(launches))
            self._libraries[launcher.name] = library
        if launches and self._selects and launcher.name not in self._called:
            self._called.add(launcher.name)
            _first_launches[self.kernels, launcher.name] = _instances_of(launches)
        if stopped:
            lines = Lines(library.built.path, {stopped.site, stopped.other_site})
            told = describe(stopped, lines, memories)
            if self.checked and self.report:  # which names the memory
                alike = (
                    f for f in self.report.findings if (f.kind, f.line) == (told.kind, told.line)
                )
                told = next(alike, told)
            kind = KeyboardInterrupt if told.kind == "interrupted" else KernelError
            raise kind(f"{launcher.name}: {told.message}")
        if refused:
            told = describe(refused, Lines(library.built.path, {refused.site}), ()).message
            raise KernelError(f"{launcher.name} returned {error_name(error)}: {told}")
        if error:
            raise KernelError(f"{launcher.name} returned {error_name(error)}")

    def _run(
        self, library: Library, launcher: Launcher, arguments: Sequence[Any]
    ) -> tuple[int, runtime.RawFailure | None, list[Memory]]:
        """Call a launcher; returns its error code, what stopped a kernel, and what that names.

        Raises KernelError if a kernel wrote beyond a tensor and nothing stopped it.
        """
        memories: list[Memory] = []
        if self.checked:
            with Checker(self, library, launcher, arguments) as checker:
                error = runtime.call(launcher, library.loaded, checker.arguments, library.static)
                stopped = runtime.failure()
                # A launch that was refused is a fault, even if the launcher does not tell.
                if _left_out(stopped):
                    checker.forget()
                    return error, stopped, memories
                self.report = checker.report(stopped or (None if error else runtime.refusal()))
                overrun = ""
        else:
            with Guarded(launcher, arguments) as guarded:
                error = runtime.call(launcher, library.loaded, guarded.arguments, library.static)
                stopped = runtime.failure()
                memories = guarded.explain(stopped)
                overrun = guarded.overrun()
        sys.stdout.write(runtime.printed())
        if overrun and not stopped:
            raise KernelError(f"{launcher.name}: {overrun}: checked mode names its line")
        return error, stopped, memories


class Checker:
    """One checked call: tensors move to memory with nothing around them, and back afterwards.

    An index that is off by any amount up to a mebibyte then hits no other argument.
    """

    def __init__(
        self, module: Module, library: Library, launcher: Launcher, arguments: Sequence[Any]
    ) -> None:
        self._module = module
        self._library = library
        self._launcher = launcher
        self._given = list(arguments)
        self._memories: list[Memory] = []
        self._places: list[tuple[int, int, int]] = []  # original address, bytes, address here
        self._written: list[tuple[int, int, int]] = []  # those that go back
        self.arguments: list[Any] = []

    def __enter__(self) -> Checker:
        lib = runtime.checker()
        lib.emulator_check_begin()
        found = spans(self._launcher, self._given)
        tables = [a for p, a in zip(self._launcher.wanted, self._given, strict=True) if p.table]
        sizes = [span.end - span.begin for span in found] + [8 * len(t or ()) for t in tables]
        room = sum(size + GAP + ALIGNMENT for size in sizes) + 2 * EDGE
        self._arena = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._anchor = ctypes.c_char.from_buffer(self._arena)
        self._cursor = ctypes.addressof(self._anchor) + EDGE
        for span in found:
            begin, size = span.begin, span.end - span.begin
            place = self._take(size, " and ".join(span.names), begin % 32, span.item)
            ctypes.memmove(place, begin, size)
            if looks_for_unwritten():
                lib.emulator_check_unwritten(place, size, span.item)
            self._places.append((begin, size, place))
            if not span.constant:  # what is only read may be mapped read-only
                self._written.append(self._places[-1])
        for array in self._library.shared_arrays:
            owner = array.kernel if array.kernel in self._module.kernels else ""
            number = len(self._memories)
            lib.emulator_check_symbol(array.offset, array.size, owner.encode(), number)
            self._memories.append(Memory(array.name, array.size))
        self.arguments = [
            self._table(p.name, a) if p.table and a else moved(a, self._places)
            for p, a in zip(self._launcher.wanted, self._given, strict=True)
        ]
        return self

    def _take(
        self, size: int, name: str, lead: int = 0, item: int = 0, on_host: bool = False
    ) -> int:
        """Room for an argument, apart from all others, `lead` bytes past an aligned address.

        A launcher may read it itself if it is `on_host`.
        """
        place = -(-(self._cursor + GAP) // ALIGNMENT) * ALIGNMENT + lead
        runtime.checker().emulator_check_range(place, size, len(self._memories), on_host)
        self._memories.append(Memory(name, size, lead, item))
        self._cursor = place + size
        return place

    def _table(self, name: str, tensors: Sequence[Any]) -> int:
        """The array of the addresses to which these tensors moved."""
        addresses = moved(tensors, self._places)
        place = self._take(ctypes.sizeof(addresses), name, on_host=True)
        ctypes.memmove(place, addresses, ctypes.sizeof(addresses))
        return place

    def __exit__(self, *_: object) -> None:
        for original, size, here in self._written:
            ctypes.memmove(original, here, size)
        runtime.checker().emulator_check_end()
        del self._anchor
        self._arena.madvise(mmap.MADV_DONTNEED)  # gives its memory back
        _past_arenas.append(self._arena)

    def forget(self) -> None:
        """Leave tensors as they were, and drop what was printed, before the launcher runs again."""
        self._written.clear()
        runtime.printed()

    def report(self, stopped: runtime.RawFailure | None) -> Report:
        """What the checker noted; before the call is left."""
        path = self._library.built.path
        return make_report(path, self._module.source, self._memories, stopped)


_ERRORS = {
    0: "cudaSuccess",
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    9: "cudaErrorInvalidConfiguration",
    17: "cudaErrorInvalidDevicePointer",
    35: "cudaErrorInsufficientDriver",
    98: "cudaErrorInvalidDeviceFunction",
    205: "cudaErrorMapBufferObjectFailed",
    209: "cudaErrorNoKernelImageForDevice",
    217: "cudaErrorPeerAccessUnsupported",
    222: "cudaErrorUnsupportedPtxVersion",
    400: "cudaErrorInvalidResourceHandle",
    600: "cudaErrorNotReady",
    700: "cudaErrorIllegalAddress",
    701: "cudaErrorLaunchOutOfResources",
    702: "cudaErrorLaunchTimeout",
    710: "cudaErrorAssert",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
    720: "cudaErrorCooperativeLaunchTooLarge",
    801: "cudaErrorNotSupported",
    912: "cudaErrorInvalidClusterSize",
    999: "cudaErrorUnknown",
}


def error_name(error: int) -> str:
    """The name of a cudaError_t."""
    return f"{_ERRORS.get(error, 'an error')} ({error})"
