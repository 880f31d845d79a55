"""A `.cu` file as Python functions: on CUDA tensors compiled by nvcc, on CPU tensors emulated.

kernels = load("norm/rms_norm.cu")
kernels.rms_norm_f32(x, weight, out, rows, columns, eps)

Each `extern "C" cudaError_t name(..., cudaStream_t stream)` of the file becomes a function. It
takes contiguous tensors (or None) for pointers, a list of them for an array of pointers
(`float* const*`), and numbers; the stream is torch's current one. Nothing is compiled before the
first call, and then only for the device of its tensors. The result is kept in the cache folder,
unless it was built ahead of time (`yaie.build.ahead`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from yaie import emulator
from yaie.build import ahead, nvcc
from yaie.build.cache import Built
from yaie.emulator import CompileError, KernelError, Report
from yaie.emulator.advice import no_launcher
from yaie.emulator.launch import error_name
from yaie.emulator.rewrite import CSRC, read_source, rewrite
from yaie.emulator.signature import Launcher, check_arguments, find_launchers, quick_values

__all__ = ["CompileError", "KernelError", "Module", "load"]

_building = threading.RLock()
# A forked child frees the lock: the thread that may hold it does not exist there.
os.register_at_fork(after_in_child=_building._at_fork_reinit)
# Errors of kernels that were running: every later call returns them.
_LASTING = {700, 702, 710, 714, 715, 716, 717, 718, 719}
_LATE = (
    ": it may be an earlier kernel's, since launches return before the kernel runs; with "
    "CUDA_LAUNCH_BLOCKING=1 each waits. This process can no longer use the GPU"
)


def load(path_or_source: str | Path, checked: bool = False, *, name: str | None = None) -> Module:
    """The launchers of a CUDA C++ file or text.

    Args:
        path_or_source: a path, absolute, relative to the present folder or relative to `csrc/`; or
            the source itself, which has more than one line.
        checked: run emulated, with every load and store checked; `module.report` is about the last
            call. Needs CPU tensors.
        name: what messages call a source that is not a file.

    At a terminal the first call prints how long compiling took, if the result was not kept.

    Returns:
        The same module as long as the file and the headers it includes are the same.

    Raises:
        FileNotFoundError; ValueError if the source has no launcher; TypeError if a launcher has a
        parameter that Python cannot pass; CompileError if a launch `<<<…>>>` has no end. The first
        call raises all other errors of compiling.
    """
    is_source = isinstance(path_or_source, str) and "\n" in path_or_source
    path = Path(name or "kernel.cu") if is_source else _find(path_or_source)
    source = path_or_source if is_source else read_source(path)
    key = (path, source, checked, name)
    module, headers = _loaded.get(key, (None, {}))
    if module is None or any(_text(file) != text for file, text in headers.items()):
        with _short_names(path):
            headers = {file: _text(file) for file in rewrite(source, path).files[1:]}
        module = Module(source, path, checked)
        _loaded[key] = module, headers
    return module


@dataclass(frozen=True)
class Availability:
    """Which code a call would run, in words, and whether it can run."""

    words: str
    available: bool = True


class Module:
    """The launchers of one source, as functions of tensors and numbers. See `load`.

    Attributes:
        name: what messages call the source.
        source: its text.
        checked: whether every load and store is checked.
        launchers: their signatures, by name.
    """

    def __init__(self, source: str, path: Path, checked: bool = False) -> None:
        self.path = path
        self.name = short_name(path)
        self.source = source
        self.checked = checked
        self.launchers = find_launchers(source)
        if not self.launchers:
            raise ValueError(f"{self.name} {no_launcher(source)}")
        self._on_cpu: emulator.Module | None = None
        self._on_gpu: dict[int, dict[str, Any]] = {}  # device index → launchers
        for own in self.launchers:
            if own in self.__dict__ or hasattr(type(self), own):
                is_own = f"since module.{own} is the module's own"
                raise ValueError(f"{self.name}: a launcher cannot be named {own}, {is_own}")

    @property
    def report(self) -> Report | None:
        """What checked mode found in the last call; None before it and without `checked`."""
        return self._on_cpu.report if self._on_cpu else None

    def __getattr__(self, name: str) -> Callable[..., None]:
        own = self.__dict__
        if name not in own.get("launchers", {}):
            raise AttributeError(f"{own.get('name')} {no_launcher(own.get('source', ''), name)}")
        launcher = own["launchers"][name]

        def launch(*arguments: Any) -> None:
            self._launch(launcher, arguments)

        launch.__name__ = launch.__qualname__ = name
        launch.kernel = self, launcher
        own[name] = launch  # the next time without this function
        return launch

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.launchers})

    def __repr__(self) -> str:
        return f"<kernels of {self.name}: {', '.join(self.launchers)}>"

    def _launch(self, launcher: Launcher, arguments: tuple[Any, ...]) -> None:
        quick = quick_values(launcher, arguments)
        if quick is not None and not self.checked:
            values, index = quick
            values.append(_stream(index))
            self.start(launcher, index, values)
            return
        device = check_arguments(launcher, arguments)
        if device is None or device.type == "cpu":
            self._emulated().call(launcher, arguments)
        elif device.type == "cuda" and not self.checked:
            values = launcher.values(arguments, _stream(device.index))
            self.start(launcher, device.index, values)
        else:
            wanted = "on the CPU in checked mode" if self.checked else "on the CPU or a CUDA device"
            raise TypeError(f"{launcher.name}(): tensors must be {wanted}, got {device}")

    def how(self, device: Any) -> Availability:
        """Which code a call with tensors on this device would run. Compiles nothing.

        "emulated", "built ahead of time", "compiled", "compiled at first use"; or what is missing:
        "no nvcc", "no C++ compiler", "needs sm_90a". Raises ValueError for a GPU that is not here.
        """
        import torch

        device = torch.device(device)
        if device.type == "cpu":
            if nvcc.emulated(self.source):
                return Availability("emulated")
            return Availability(f"needs {nvcc.sm(nvcc.needs(self.source))}", available=False)
        try:
            capability = torch.cuda.get_device_capability(device)
        except (AssertionError, RuntimeError) as error:
            raise ValueError(f"there is no device {device} here: {error}") from None
        if ahead.find(self.source, self.path, capability):
            return Availability("built ahead of time")
        if not nvcc.able(nvcc.architectures_of(capability), self.source):
            return Availability(f"needs {nvcc.sm(nvcc.needs(self.source))}", available=False)
        with suppress(CompileError):  # there never was an nvcc
            if nvcc.kept(self.source, self.path, capability).exists():
                return Availability("compiled")
        if nvcc.find() is None:
            return Availability("no nvcc", available=False)
        if not nvcc.has_host_compiler():
            return Availability("no C++ compiler", available=False)
        return Availability("compiled at first use")

    def _emulated(self) -> emulator.Module:
        if self._on_cpu is None:
            if not nvcc.emulated(self.source):
                needed = nvcc.sm(nvcc.needs(self.source))
                raise CompileError(
                    f"{self.name} needs {needed}, for instructions that the emulator "
                    "does not have: give it CUDA tensors"
                )
            with _building, _short_names(self.path):
                if self._on_cpu is None:
                    module = emulator.Module(self.source, self.path, self.checked)
                    self._tell(module.built, "for the CPU")
                    self._on_cpu = module
        return self._on_cpu

    def start(self, launcher: Launcher, index: int, values: Sequence[Any]) -> None:
        """Launch on card `index`."""
        import torch

        if torch._C._cuda_getDevice() != index:
            with torch.cuda.device(index):
                return self.start(launcher, index, values)
        functions = self._on_gpu.get(index) or self._compiled_for(index)
        _check(launcher, functions[launcher.name](launcher.pack(*values)))

    def repeat(self, launcher: Launcher, index: int, values: Sequence[Any]) -> dict[str, Any]:
        """What repeats a launch of `start` with other addresses, when `index` is the current card:
        `start(pack(first, *pointers, stream))`, and then `fail` with its error unless that is 0."""
        return {
            "start": self._on_gpu[index][launcher.name],
            "pack": launcher.packed_again.pack,
            "first": launcher.pack(*values),
            "fail": partial(_check, launcher),
        }

    def _compiled_for(self, index: int) -> dict[str, Any]:
        import torch

        with _building, _short_names(self.path):
            if index not in self._on_gpu:
                capability = torch.cuda.get_device_capability(index)
                path = self._library(capability)
                try:
                    library = ctypes.CDLL(str(path))
                except OSError as error:  # it asks for another CUDA runtime than torch has loaded
                    wanted = f"nvcc must be of torch's CUDA version, {torch.version.cuda}"
                    raise CompileError(f"{error}; {wanted}") from error
                self._on_gpu[index] = {
                    name: x.packed_in(library) for name, x in self.launchers.items()
                }
        return self._on_gpu[index]

    def _library(self, capability: tuple[int, int]) -> Path:
        """The shared object for a card, built if there is none for this very source."""
        found = ahead.find(self.source, self.path, capability)
        if found is not None:
            return found
        built = nvcc.build_for(self.source, self.path, capability)
        self._tell(built, f"for sm_{capability[0]}{capability[1]}")
        return built.path

    def _tell(self, built: Built, where: str) -> None:
        if built.fresh and sys.stdout.isatty():
            print(f"compiled {self.name} {where} in {built.seconds:.2f} s")


def _check(launcher: Launcher, error: int) -> None:
    if error:
        late = _LATE if error in _LASTING else ""
        raise KernelError(f"{launcher.name} returned {error_name(error)}{late}")


def _stream(index: int) -> int:
    """The handle of torch's current stream; `current_stream` makes an object for it each time."""
    import torch

    return torch._C._cuda_getCurrentRawStream(index)


# By path, source and options: the module, and the text of every header that it was made with.
_loaded: dict[tuple, tuple[Module, dict[Path, str | None]]] = {}


def _text(file: Path) -> str | None:
    """The text of a file; None if it is gone."""
    with suppress(FileNotFoundError):
        return read_source(file)
    return None


def _find(name: str | Path) -> Path:
    path = Path(name).expanduser()
    for place in (path.absolute(), CSRC / path):
        if place.is_file():
            return place
    raise FileNotFoundError(f"no file {str(name)!r}, neither here nor in {CSRC}")


def short_name(path: Path) -> str:
    """What messages call a file: its path in csrc/, else in the repository, else whole."""
    for base in (CSRC, CSRC.parent):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return str(path)


@contextmanager
def _short_names(path: Path) -> Iterator[None]:
    try:
        yield
    except (CompileError, SyntaxError) as error:
        raise CompileError(str(error).replace(str(path), short_name(path))) from None
