"""A `.cu` file as Python functions: on CUDA tensors compiled by nvcc, on CPU tensors emulated.

kernels = load("norm/rms_norm.cu")
kernels.rms_norm_f32(x, weight, out, rows, columns, eps)

Each `extern "C" cudaError_t name(..., cudaStream_t stream)` of the file becomes a function. It
takes contiguous tensors for pointers, and numbers; the stream is torch's current one. Nothing is
compiled before the first call, and then only for the device of its tensors.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from yaie import emulator, nvcc
from yaie.cache import cache_root
from yaie.emulator import CompileError, KernelError, Report
from yaie.emulator.launch import error_name
from yaie.emulator.rewrite import CSRC, rewrite
from yaie.emulator.signature import Launcher, check_arguments, find_launchers

__all__ = ["CompileError", "KernelError", "Module", "load"]

_modules: dict[tuple, Module] = {}
_building = threading.RLock()


def load(
    path_or_source: str | Path,
    checked: bool = False,
    *,
    name: str | None = None,
    flags: Sequence[str] = (),
) -> Module:
    """The launchers of a CUDA C++ file or text.

    Args:
        path_or_source: a path, absolute, relative to `csrc/` or relative to the present folder; or
            the source itself, which has more than one line.
        checked: run emulated, with every load and store checked; `module.report` then tells of
            the last call. Needs CPU tensors.
        name: what messages call a source that is no file.
        flags: further options for the compiler.

    Returns:
        The same module as long as the file and the headers it includes are the same.

    Raises:
        FileNotFoundError, or ValueError if the source has no launcher. CompileError is raised by
        the first call.
    """
    source, path = _read(path_or_source, name)
    files = _files(source, path)
    key = (str(path), checked, tuple(flags), content_hash(files))
    module = _modules.get(key)
    if module is None:
        module = _modules.setdefault(key, Module(source, path, checked, flags))
    return module


class Module:
    """The launchers of one source, as functions of tensors and numbers.

    Attributes:
        path: what messages call the source.
        source: its text.
        checked: whether every load and store is checked.
    """

    def __init__(
        self, source: str, path: Path, checked: bool = False, flags: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.source = source
        self.checked = checked
        self.flags = tuple(flags)
        self.launchers = find_launchers(source)
        if not self.launchers:
            raise ValueError(f'{path} has no launcher: extern "C" cudaError_t name(...) {{')
        self._on_cpu: emulator.Module | None = None
        self._on_gpu: dict[tuple[int, int], ctypes.CDLL] = {}  # by compute capability

    @property
    def report(self) -> Report | None:
        """What checked mode found in the last call; None before it and without `checked`."""
        return self._on_cpu.report if self._on_cpu else None

    def __getattr__(self, name: str) -> Callable[..., None]:
        launchers = self.__dict__.get("launchers", {})
        if name not in launchers:
            raise AttributeError(f"{self.path} has no launcher {name!r}: {', '.join(launchers)}")
        launcher = launchers[name]

        def launch(*arguments: Any) -> None:
            self._launch(launcher, arguments)

        self.__dict__[name] = launch
        return launch

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.launchers})

    def __repr__(self) -> str:
        return f"<kernels of {self.path}: {', '.join(self.launchers)}>"

    def _launch(self, launcher: Launcher, arguments: tuple[Any, ...]) -> None:
        check_arguments(launcher, arguments)
        device = _device(launcher, arguments)
        if device is None or device.type == "cpu":
            getattr(self._emulated(), launcher.name)(*arguments)
        elif device.type == "cuda" and not self.checked:
            self._launch_on_gpu(launcher, arguments, device)
        else:
            why = "checked mode runs emulated" if self.checked else "there is no other device"
            raise TypeError(
                f"{launcher.name}(): tensors must be on the CPU{'' if self.checked else ' or CUDA'}"
                f", got {device}: {why}"
            )

    def _emulated(self) -> emulator.Module:
        if self._on_cpu is None:
            with _building:
                self._on_cpu = emulator.Module(self.source, self.path, self.checked, self.flags)
        return self._on_cpu

    def _launch_on_gpu(self, launcher: Launcher, arguments: tuple[Any, ...], device: Any) -> None:
        import torch

        function = getattr(self._library(device), launcher.name)
        function.restype = ctypes.c_int
        function.argtypes = [p.ctype for p in launcher.parameters]
        stream = torch.cuda.current_stream(device).cuda_stream
        given = iter(arguments)
        values = [
            stream if p.is_stream else a.data_ptr() if hasattr(a := next(given), "data_ptr") else a
            for p in launcher.parameters
        ]
        with torch.cuda.device(device):
            error = function(*values)
        if error:
            raise KernelError(f"{launcher.name} returned {error_name(error)}")

    def _library(self, device: Any) -> ctypes.CDLL:
        import torch

        capability = torch.cuda.get_device_capability(device)
        if capability not in self._on_gpu:
            with _building:
                self._on_gpu[capability] = ctypes.CDLL(str(self._compiled(capability)))
        return self._on_gpu[capability]

    def _compiled(self, capability: tuple[int, int]) -> Path:
        """The shared object for a card, built if there is none for this very source."""
        import torch

        architectures = nvcc.architectures_of(capability)
        key = content_hash(
            _files(self.source, self.path),
            *(*nvcc.OPTIONS, *architectures, *self.flags, torch.__version__),
            nvcc.version(nvcc.nvcc()),
        )
        folder = cache_root() / "cuda"
        target = folder / f"{self.path.stem or 'kernel'}-{key}.so"
        if target.exists():
            return target
        folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder, prefix="building-") as own:
            built = nvcc.build_inline(self.source, self.path, architectures, Path(own), self.flags)
            os.replace(built, target)
        self.seconds = time.perf_counter() - started
        return target


def _device(launcher: Launcher, arguments: Sequence[Any]) -> Any:
    """The device of all tensors, or None if there are none; TypeError if they are on several."""
    first = None
    for parameter, argument in zip(launcher.wanted, arguments, strict=True):
        if not parameter.pointer or argument is None:
            continue
        if first is None:
            first = (parameter.name, argument.device)
        elif argument.device != first[1]:
            raise TypeError(
                f"{launcher.name}(): argument {parameter.name!r} must be on {first[1]} like "
                f"{first[0]!r}, got {argument.device}"
            )
    return first[1] if first else None


# ------------------------------------------------------------------------------- sources


def _read(path_or_source: str | Path, name: str | None) -> tuple[str, Path]:
    """The text and what it is called."""
    if isinstance(path_or_source, str) and "\n" in path_or_source:
        return path_or_source, Path(name or "kernel.cu")
    path = Path(path_or_source).expanduser()
    for place in (path, CSRC / path):
        if place.is_file():
            return place.read_text(encoding="utf-8"), place
    raise FileNotFoundError(f"no file {path}, here or in {CSRC}")


def _files(source: str, path: Path) -> list[str]:
    """The text of a source and of every header that it includes with quotes."""
    return [source, *(file.read_text() for file in rewrite(source, path).files[1:])]


def content_hash(texts: Sequence[str], *more: str) -> str:
    """Sixteen hexadecimal digits that change with any of the texts."""
    digest = hashlib.sha256()
    for text in (*texts, *more):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]
