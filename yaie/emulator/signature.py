"""The `extern "C"` launchers of a `.cu` file, and how Python values become their arguments."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

from yaie.emulator.rewrite import hide

_LAUNCHER = re.compile(r"\bcudaError_t\s+(\w+)\s*\(([^()]*)\)\s*\{")
_NUMBERS = {
    **dict.fromkeys(["int", "int32_t", "signed", "signed int"], ctypes.c_int32),
    **dict.fromkeys(["unsigned", "unsigned int", "uint32_t"], ctypes.c_uint32),
    **dict.fromkeys(["long", "long long", "int64_t", "long int"], ctypes.c_int64),
    **dict.fromkeys(["unsigned long", "unsigned long long", "uint64_t"], ctypes.c_uint64),
    **{"size_t": ctypes.c_size_t, "bool": ctypes.c_bool},
    **{"float": ctypes.c_float, "double": ctypes.c_double},
}
# What a pointer may point to, as the names of torch's dtypes; void takes any.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    **dict.fromkeys(["__half", "half"], "float16"),
    **dict.fromkeys(["__nv_bfloat16", "nv_bfloat16"], "bfloat16"),
    **dict.fromkeys(["int", "int32_t", "unsigned", "unsigned int", "uint32_t"], "int32"),
    **dict.fromkeys(
        ["long", "long long", "int64_t", "uint64_t", "unsigned long", "unsigned long long"],
        "int64",
    ),
    **dict.fromkeys(["short", "int16_t", "unsigned short", "uint16_t"], "int16 uint16"),
    **dict.fromkeys(["unsigned char", "uint8_t"], "uint8"),
    **dict.fromkeys(["char", "signed char", "int8_t"], "int8"),
    "bool": "bool",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a launcher: a pointer to `kind`, a number, or the stream.

    `constant` is a pointer through which nothing is written.
    """

    name: str
    kind: str
    pointer: bool
    constant: bool = False

    @property
    def is_stream(self) -> bool:
        return self.kind == "cudaStream_t"

    @property
    def ctype(self) -> Any:
        return ctypes.c_void_p if self.pointer or self.is_stream else _NUMBERS[self.kind]


@dataclass(frozen=True)
class Launcher:
    """The signature `extern "C" cudaError_t name(parameters)`."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def wanted(self) -> tuple[Parameter, ...]:
        """What the caller gives: all but the stream."""
        return tuple(p for p in self.parameters if not p.is_stream)


def find_launchers(source: str) -> dict[str, Launcher]:
    """Every `extern "C" cudaError_t name(...)` defined in the source, by name.

    They are read as they stand: one that a macro writes is not found.

    Raises TypeError for a parameter of a type that Python cannot pass.
    """
    found = {}
    hidden = hide(source)
    for match in _LAUNCHER.finditer(hidden):
        if not _is_extern(hidden[: match.start()].rstrip()):
            continue
        texts = [text for text in match[2].split(",") if text.strip() not in ("", "void")]
        parameters = tuple(_parameter(match[1], text) for text in texts)
        found[match[1]] = Launcher(match[1], parameters)
    return found


def _is_extern(before: str) -> bool:
    """Whether what follows this text, whose literals are blanked, is extern "C"."""
    if re.search(r"\bextern$", before):
        return True
    depth = 0
    for position in range(len(before) - 1, -1, -1):
        if before[position] == "{" and depth == 0:
            return re.search(r"\bextern\s*$", before[:position]) is not None
        depth += (before[position] == "}") - (before[position] == "{")
    return False


def _parameter(launcher: str, text: str) -> Parameter:
    pointer = "*" in text
    plain = re.sub(r"\b(const|volatile|struct|__restrict__|restrict)\b|\*", " ", text)
    *kind, name = plain.split()
    if not kind:  # a type without a name
        kind, name = [name], ""
    constant = re.search(r"\bconst\b", text.partition("*")[0]) is not None
    parameter = Parameter(name, " ".join(kind), pointer, constant)
    if text.count("*") > 1 or not (pointer or parameter.is_stream or parameter.kind in _NUMBERS):
        raise TypeError(
            f"{launcher}: parameter {name!r} has the type {' '.join(text.split())!r}; a launcher "
            "takes pointers, integers, float, double and a cudaStream_t"
        )
    return parameter


def check_arguments(launcher: Launcher, arguments: tuple[Any, ...]) -> None:
    """Compare arguments with the signature; raises TypeError that names the parameter."""
    wanted = launcher.wanted
    if len(arguments) != len(wanted):
        names = ", ".join(p.name for p in wanted)
        raise TypeError(
            f"{launcher.name}() takes {len(wanted)} arguments ({names}), got {len(arguments)}"
        )
    for parameter, argument in zip(wanted, arguments, strict=True):
        problem = _problem(parameter, argument)
        if problem:
            raise TypeError(f"{launcher.name}(): argument {parameter.name!r} {problem}")


def _problem(parameter: Parameter, argument: Any) -> str | None:
    if not parameter.pointer:
        whole = parameter.kind not in ("float", "double")
        if isinstance(argument, int) or (isinstance(argument, float) and not whole):
            return _range_problem(parameter, argument) if whole else None
        return f"must be a number ({parameter.kind}), got {type(argument).__name__}"
    if argument is None:
        return None
    if not hasattr(argument, "data_ptr"):
        return f"must be a tensor or None, got {type(argument).__name__}"
    dtype = str(argument.dtype).removeprefix("torch.")
    allowed = _DTYPES.get(parameter.kind)
    if allowed and dtype not in allowed.split():
        return f"must be a tensor of {allowed.replace(' ', ' or ')}, got {dtype}"
    if not argument.is_contiguous():
        return f"must be contiguous, got strides {tuple(argument.stride())}"
    return None


def _range_problem(parameter: Parameter, value: int) -> str | None:
    if parameter.ctype(value).value == value:
        return None
    return f"must fit in {parameter.kind}, got {value}"
