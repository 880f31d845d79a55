"""`yaie.kernel_info()`: which code would compute each operator on this machine, and why."""

import importlib.util
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch

from yaie.build import cpu, jit
from yaie.ops import registry
from yaie.ops.interpreter import interpreted


@dataclass(frozen=True)
class KernelInfo:
    """One operator on one back end.

    Attributes:
        how: "plain PyTorch", "interpreted", "emulated", "built ahead of time", "compiled",
            "compiled at first use", or what is missing.
        code: the function, as module:name, or the files of csrc/ that it launches.
        available: whether it can run here at all; it may still refuse certain arguments.
        chosen: whether `backend="auto"` tries it first.
    """

    operator: str
    backend: str
    how: str
    code: str
    available: bool = True
    chosen: bool = False


class KernelTable(list[KernelInfo]):
    """All operators on all back ends of a device; prints as a table."""

    def __init__(self, entries: Iterable[KernelInfo], device: str) -> None:
        super().__init__(entries)
        self.device = device

    def of(self, operator: str, backend: str) -> KernelInfo:
        """The entry of an operator on a back end."""
        for entry in self:
            if (entry.operator, entry.backend) == (operator, backend):
                return entry
        raise ValueError(f"no operator {operator!r} with a back end {backend!r}")

    def __str__(self) -> str:
        rows = [("operator", " ", "back end", "how", "code")]
        before = ""
        for entry in self:
            name = entry.operator if entry.operator != before else ""
            rows.append((name, "*" * entry.chosen, entry.backend, entry.how, entry.code))
            before = entry.operator
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", f'* what backend="auto" asks first on {self.device}'])

    __repr__ = __str__


def kernel_info(device: str | torch.device | None = None) -> KernelTable:
    """Which code would compute each operator with each back end. Compiles nothing.

    Args:
        device: of the tensors; None is the GPU if there is one, else the CPU.

    Raises ValueError for a device that is not here.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type not in registry.ORDER:
        raise ValueError(f"device must be {' or '.join(registry.ORDER)}, got {device}")
    entries = []
    for operator in registry.operators():
        found = [_describe(operator, backend, device) for backend in registry.backends(operator)]
        order = registry.order(operator, device.type)
        first = next(name for name in order for e in found if e.backend == name and e.available)
        entries += [replace(entry, chosen=entry.backend == first) for entry in found]
    return KernelTable(entries, str(device))


def _describe(operator: str, backend: str, device: torch.device) -> KernelInfo:
    """The entry of an operator on a back end; whether `auto` tries it first is not known here."""
    entry = partial(KernelInfo, operator, backend)
    code = registry.location(operator, backend)
    if backend == "triton":
        if importlib.util.find_spec("triton") is None:
            return entry("not installed", code, available=False)
        return entry("interpreted" if interpreted() else "compiled at first use", code)
    if backend.startswith("cuda"):  # or one of several ways, "cuda_binary"
        files = cuda_files(registry.resolve(operator, backend))
        if files:
            states = [jit.load(jit.CSRC / file).how(device) for file in files]
            how = " or ".join(dict.fromkeys(state.words for state in states))
            return entry(how, ", ".join(files), all(state.available for state in states))
    if backend == "cpp":
        how = cpu.how() if device.type == "cpu" else "for a CPU"
        return entry(how, "cpu/step.cpp", how.startswith("compiled"))
    return entry("plain PyTorch" if backend == "reference" else "Python", code)


def cuda_files(function: Callable) -> list[str]:
    """The files of csrc/ that a function names, itself or by what it calls in folders `cuda`."""
    found: list[str] = []
    seen: set[types.CodeType] = set()

    def look(function: types.FunctionType) -> None:
        code, names = function.__code__, function.__globals__
        if code in seen:
            return
        seen.add(code)
        known = [names[name] for name in code.co_names if name in names]
        known += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        constants = [x for c in code.co_consts for x in (c if isinstance(c, tuple) else (c,))]
        for value in [*constants, *known]:
            if isinstance(value, str) and value.endswith(".cu"):
                found.append(value)
            elif isinstance(value, types.FunctionType) and ".cuda." in value.__module__:
                look(value)

    if isinstance(function, types.FunctionType):
        look(function)
    return list(dict.fromkeys(found))
