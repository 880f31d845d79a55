"""Which code computes an operator.

Every operator has a reference in plain PyTorch; most have kernels in Triton and in CUDA C++ as
well. `auto` takes the first of a device's list that has the operator and can compute the arguments.
Any other name is a demand: that back end computes it, or a ValueError says why it cannot. So
`backend="cuda"` runs on a CPU too, through the emulator, and `backend="triton"` through Triton's
interpreter: slowly, but the same kernels.
"""

from __future__ import annotations

import functools
import inspect
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

AUTO = "auto"
HOPPER = (9, 0)  # the compute capability of the cards that cuda_hopper takes
# What runs a back end's kernels on a CPU.
STAND_INS = {
    **dict.fromkeys(("cuda", "cuda_hopper"), "in the emulator, far slower than on a GPU"),
    "triton": "in Triton's interpreter, far slower than on a GPU",
}
ORDER = {"cuda": ("cuda_hopper", "cuda", "triton", "reference"), "cpu": ("cpp", "reference")}

# Operator -> the modules of `yaie.ops` that have a function of its name, or module:function if the
# function has another name; all take the operator's arguments, which `yaie.ops` has checked. A
# module's folder is the back end's name, unless `_BACKENDS` has it.
_PLACES = {
    "silu_and_mul": "reference.elementwise triton.elementwise cuda.elementwise cpp.operators",
    "rms_norm": "reference.norm triton.norm cuda.norm cpp.operators",
    "add_rms_norm": "reference.norm triton.norm cuda.norm cpp.operators",
    "rotary": "reference.rotary:apply_rotary triton.rotary cuda.rotary cpp.operators",
    "ragged_attention": "reference.attention triton.flash cuda.flash cuda.hopper",
    "paged_attention": "reference.attention triton.paged cuda.paged cpp.operators cuda.hopper",
    "reshape_and_cache": "reference.kv triton.kv cuda.kv cpp.operators",
    "sample": "reference.sampling cuda.sampling",
}
_BACKENDS = {"cuda.hopper": "cuda_hopper"}
_FUNCTIONS: dict[str, dict[str, str | Callable]] = {
    operator: {
        _BACKENDS.get(module, module.partition(".")[0]): f"yaie.ops.{module}:{name or operator}"
        for module, _, name in (place.partition(":") for place in places.split())
    }
    for operator, places in _PLACES.items()
}
changed: set[str] = set()  # the operators for which a back end was registered or preferred
replaced: set[str] = set()  # those for which a back end that "auto" tries was registered
_preferred: dict[str, str] = {}
_announced: set[tuple[str, str, str]] = set()


class Unsupported(NotImplementedError):
    """A back end cannot compute these arguments; the message says which and what it can.

    Raised by a back end's function before it has written anything.
    """


class Declined(Unsupported):
    """A back end was not made for these arguments: `auto` goes on without a warning."""


class FallbackWarning(UserWarning):
    """`auto` passed a back end over: shown once for each operator, back end and reason. Reasons
    that differ only in a number, such as a tensor's size, count as the same."""


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of the device; 1 for a CPU."""
    cuda = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if cuda else 1


def declare(table: Mapping[str, Mapping[str, str]]) -> None:
    """Add operators to those of the engine, as rows like its own: back end -> module:name.

    Raises ValueError for an operator that exists.
    """
    for operator, functions in table.items():
        if operator in _FUNCTIONS:
            raise ValueError(f"operator {operator} is declared already")
        _FUNCTIONS[operator] = dict(functions)


def register(operator: str, backend: str, function: Callable) -> None:
    """Add a back end of your own, or replace one, for one operator.

    Args:
        operator: one of `operators()`.
        backend: any name but "auto", without a colon; give it as `backend=`, or see `prefer`.
        function: takes the operator's arguments, and may raise `Unsupported`.
    """
    functions = _of(operator)
    if backend == AUTO:
        raise ValueError('backend must be a name of its own, got "auto"')
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    functions[backend] = function
    changed.add(operator)
    if any(backend in names for names in ORDER.values()):
        replaced.add(operator)


def find(place: str, wanted: str) -> Any:
    """What "module:function" names, the working directory first; or a ValueError with `wanted`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{wanted} module:function, got {place!r}: {error}") from error


def plug(operator: str, place: str) -> None:
    """Register a function by its place, "module:function", as a back end of that name.

    Raises ValueError if there is no such function, TypeError if it cannot take the arguments.
    """
    what = f"backend of {operator} must be"
    function = find(place, f"{what} {_names(_of(operator))} or")
    arguments = getattr(torch.ops.yaie, operator).default._schema.arguments
    wanted = [argument.name for argument in arguments if not argument.kwarg_only]
    try:
        inspect.signature(function).bind(*wanted)
    except (TypeError, ValueError) as error:  # ValueError: a function in C has no signature
        called = f"{what} a function of ({', '.join(wanted)})"
        raise TypeError(f"{called}, got {place!r}: {error}") from error
    register(operator, place, function)


def in_words(backends: Mapping[str, str], device: str | torch.device) -> str:
    """Which operators each back end computes on a device, such as "cpu", and what stands in for a
    GPU there."""
    device, names = torch.device(device), {}
    stand_ins = STAND_INS if device.type == "cpu" else {}
    for operator, backend in backends.items():
        if backend == AUTO:
            backend, *others = order(operator, device.type)
            if backend == "cuda_hopper" and torch.cuda.get_device_capability(device) != HOPPER:
                backend = others[0]
        by = f"{backend}, {stand_ins[backend]}" if backend in stand_ins else backend
        names.setdefault(by, []).append(operator)
    return "; ".join(f"{', '.join(who)} by {by}" for by, who in names.items())


def prefer(operator: str, backend: str | None) -> None:
    """Have `auto` try this back end first for one operator; None ends the preference."""
    functions = _of(operator)
    if backend is None:
        _preferred.pop(operator, None)
        return
    if backend not in functions:
        raise ValueError(f"backend of {operator} must be {_names(functions)}, got {backend!r}")
    _preferred[operator] = backend
    changed.add(operator)


def are_ours(operators: Iterable[str]) -> bool:
    """Whether "auto" means no other code than the engine's own for all of these operators."""
    return replaced.isdisjoint(operators) and _preferred.keys().isdisjoint(operators)


def operators() -> list[str]:
    """The names of all operators."""
    return list(_FUNCTIONS)


def backends(operator: str) -> list[str]:
    """The names of the back ends that have an operator."""
    return list(_of(operator))


def choose(names: Iterable[str], backends: str | Mapping[str, str]) -> dict[str, str]:
    """A back end for each of some operators.

    Args:
        names: the operators.
        backends: one back end, or "auto", for all that have it, with "auto" for the rest; or a
            mapping with a back end for some of them, and "auto" for the rest. There, the place of
            a function, "module:function", is a back end too: see `plug`.

    Raises ValueError for an operator or a back end that there is not, TypeError for anything else.
    """
    names = list(names)
    if isinstance(backends, str):
        known = {AUTO}.union(*(_of(name) for name in names))
        if backends not in known:
            wanted = f"{_names(sorted(known))}, or a mapping, such as {{'rms_norm': 'cuda'}}"
            raise ValueError(f"backend must be {wanted}, got {backends!r}")
        return {name: backends if backends in _of(name) else AUTO for name in names}
    if not isinstance(backends, Mapping):
        wanted = "a name or a mapping from operators to names"
        raise TypeError(f"backend must be {wanted}, got {backends!r}")
    for name, backend in backends.items():
        if name not in names:
            raise ValueError(f"backend: operators are {_names(names)}, got {name!r}")
        if isinstance(backend, str) and ":" in backend:
            plug(name, backend)
        elif backend not in [AUTO, *_of(name)]:
            raise ValueError(f"backend of {name} must be {_names(_of(name))}, got {backend!r}")
    return {name: backends.get(name, AUTO) for name in names}


def order(operator: str, device: str) -> list[str]:
    """The back ends that `auto` tries on a device, such as "cpu" or "cuda", best first.

    On a device that is not in ORDER the reference is all that there is.
    """
    functions = _of(operator)
    names = dict.fromkeys([_preferred.get(operator), *ORDER.get(device, ("reference",))])
    return [name for name in names if name in functions]


def resolve(operator: str, backend: str) -> Callable:
    """The function of an operator's back end. The first use imports its module."""
    functions = _of(operator)
    function = functions.get(backend)
    if function is None:
        raise ValueError(f"backend of {operator} must be {_names(functions)}, got {backend!r}")
    if isinstance(function, str):
        function = functions[backend] = pkgutil.resolve_name(function)
    return function


def location(operator: str, backend: str) -> str:
    """Where the function of an operator's back end is, as module:name. Imports nothing."""
    function = _of(operator)[backend]
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}:{name}"


def compute(operator: str, backend: str, device: str, *arguments: Any) -> Any:
    """Compute an operator with a back end, or with the first that can if it is "auto".

    Raises ValueError if `backend` cannot, or is unknown. A back end that `auto` passes over is
    announced by a FallbackWarning.
    """
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Declined:
            continue
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)


def announce(operator: str, backend: str, reason: str) -> None:
    """Warn that a back end, or the kernel that it would rather launch, was passed over: once for
    each reason."""
    key = (operator, backend, re.sub(r"\b\d+\b", "#", reason))
    if key not in _announced:
        _announced.add(key)
        message = f"{operator}: {backend!r} passed over: {reason}"
        warnings.warn(message, FallbackWarning, stacklevel=2)


def _of(operator: str) -> dict[str, str | Callable]:
    if operator not in _FUNCTIONS:
        raise ValueError(f"operator must be {_names(_FUNCTIONS)}, got {operator!r}")
    return _FUNCTIONS[operator]


def _names(table: Iterable[str]) -> str:
    return " or ".join(map(repr, table))
