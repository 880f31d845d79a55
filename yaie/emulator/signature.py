"""The `extern "C"` launchers of a `.cu` file, and how Python values become their arguments."""

import ctypes
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from numbers import Integral, Real
from operator import attrgetter, methodcaller
from typing import Any

from yaie.emulator.text import hide, without_directives

_address_of = methodcaller("data_ptr")
_device_of, _dtype_of = attrgetter("device"), attrgetter("dtype")
_DEFINITION = r"\b{}\s+(\w+)\s*\(([^()]*)\)\s*\{{"
_NUMBERS = {
    **dict.fromkeys(["int", "int32_t", "signed", "signed int"], ctypes.c_int32),
    **dict.fromkeys(["unsigned", "unsigned int", "uint32_t"], ctypes.c_uint32),
    **dict.fromkeys(["long", "long long", "int64_t", "long int"], ctypes.c_int64),
    **dict.fromkeys(["unsigned long", "unsigned long long", "uint64_t"], ctypes.c_uint64),
    **{"size_t": ctypes.c_size_t, "bool": ctypes.c_bool},
    **{"float": ctypes.c_float, "double": ctypes.c_double},
}
# What a pointer may point to, as the names of torch's dtypes; void and unknown types take any.
_DTYPES = {
    **dict.fromkeys(["float", "float2", "float4"], "float32"),
    **dict.fromkeys(["double", "double2"], "float64"),
    **dict.fromkeys(["__half", "half", "__half2", "half2"], "float16"),
    **dict.fromkeys(["__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162"], "bfloat16"),
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    **dict.fromkeys(["int", "int32_t", "int2", "int4"], "int32"),
    **dict.fromkeys(["unsigned", "unsigned int", "uint32_t"], "int32 uint32"),
    **dict.fromkeys(["long", "long long", "int64_t"], "int64"),
    **dict.fromkeys(["uint64_t", "unsigned long", "unsigned long long"], "int64 uint64"),
    **dict.fromkeys(["short", "int16_t"], "int16"),
    **dict.fromkeys(["unsigned short", "uint16_t"], "int16 uint16"),
    **dict.fromkeys(["unsigned char", "uint8_t"], "uint8"),
    **dict.fromkeys(["char", "signed char", "int8_t"], "int8"),
    "bool": "bool",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a launcher: a pointer to `kind`, a number, or the stream.

    `constant` is a pointer through which nothing is written; `table` one to an array of pointers,
    `kind* const*`, for which a list of tensors is given. `type` is the source's own text.
    """

    name: str
    kind: str
    pointer: bool
    constant: bool = False
    table: bool = False
    type: str = ""

    @property
    def is_stream(self) -> bool:
        return self.kind == "cudaStream_t"

    @property
    def ctype(self) -> Any:
        return ctypes.c_void_p if self.pointer or self.is_stream else _NUMBERS[self.kind]

    @cached_property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest integer that may be given; None for float and double."""
        if self.kind in ("float", "double"):
            return None
        bits = 8 * ctypes.sizeof(self.ctype) if self.kind != "bool" else 1
        signed = self.ctype(-1).value < 0
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    @cached_property
    def dtypes(self) -> frozenset:
        """The dtypes of tensors that may be given for a pointer; empty: any."""
        import torch

        names = _DTYPES.get(self.kind, "").split()
        return frozenset(getattr(torch, name) for name in names)


@dataclass(frozen=True)
class Launcher:
    """The signature `extern "C" cudaError_t name(parameters)`."""

    name: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def wanted(self) -> tuple[Parameter, ...]:
        """What the caller gives: all but the stream."""
        return tuple(p for p in self.parameters if not p.is_stream)

    def bind(self, library: ctypes.CDLL) -> Any:
        """The launcher of a loaded shared object, to be called with `values`."""
        function = getattr(library, self.name)
        function.restype = ctypes.c_int
        function.argtypes = [p.ctype for p in self.parameters]
        return function

    @cached_property
    def order(self) -> list[int]:
        """The order in which parameters are packed: numbers first, then pointers and the stream,
        whose values differ from call to call."""
        kinds = [1 if p.pointer else 2 if p.is_stream else 0 for p in self.parameters]
        return sorted(range(len(kinds)), key=kinds.__getitem__)

    @cached_property
    def packed_again(self) -> struct.Struct:
        """Packs a repeated call: the numbers from what `pack` returned, and new addresses."""
        addresses = sum(p.pointer or p.is_stream for p in self.parameters)
        return struct.Struct(f"{8 * (len(self.parameters) - addresses)}s{'Q' * addresses}")

    @cached_property
    def _packed(self) -> struct.Struct:
        return struct.Struct("".join(f"{self.parameters[i].ctype._type_}0q" for i in self.order))

    def pack(self, *values: Any) -> bytes:
        """The values of a call in bytes, 8 for each, for what `packed_in` returns."""
        return self._packed.pack(*[values[i] for i in self.order])

    @property
    def packed_call(self) -> str:
        """C++ text with a function `yaie_packed_<name>`, which reads from memory what `pack` wrote,
        and calls the launcher; it is declared again because it may stand in a namespace."""
        types = ", ".join(p.type for p in self.parameters)
        places = {which: 8 * i for i, which in enumerate(self.order)}
        values = [f"*({p.type}*)(values + {places[i]})" for i, p in enumerate(self.parameters)]
        return (
            f'extern "C" cudaError_t {self.name}({types});\n'
            f'extern "C" cudaError_t yaie_packed_{self.name}(const char* values) '
            f"{{ return {self.name}({', '.join(values)}); }}\n"
        )

    def packed_in(self, library: ctypes.CDLL) -> Any:
        """The launcher in a library that `yaie.build.nvcc` built; it takes what `pack` returns,
        since ctypes would need longer to convert twenty values than the launch takes. No type is
        declared: that slows even a single argument."""
        return getattr(library, f"yaie_packed_{self.name}")

    def at(self, address: int) -> Any:
        """The launcher as a function that is called at an address."""
        return self._type(address)

    @cached_property
    def _type(self) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int, *(p.ctype for p in self.parameters))

    @cached_property
    def quick(self) -> tuple[tuple[bool, Any], ...] | None:
        """For each argument whether it is a pointer, and its dtype or range; None: any.

        None if a launcher takes more than that, or its stream is not the last.
        """
        *rest, last = self.parameters or (None,)
        if last is None or not last.is_stream:
            return None
        for p in rest:
            if p.table or p.is_stream or len((p.pointer and p.dtypes) or ()) > 1:
                return None
        return tuple(
            (True, next(iter(p.dtypes), None))
            if p.pointer
            else (False, range(p.limits[0], p.limits[1] + 1) if p.limits else None)
            for p in self.wanted
        )

    @cached_property
    def can_repeat(self) -> bool:
        """Whether other addresses are enough for another launch with the same numbers: there is a
        stream, and no table, which is an address that is not one tensor's."""
        streams = len(self.parameters) - len(self.wanted)
        return streams == 1 and not any(p.table for p in self.wanted)

    def pointers(self, arguments: Sequence[Any]) -> list[Any]:
        """What is given for the pointers: tensors, and 0 in place of None."""
        given = zip(self.wanted, arguments, strict=True)
        return [0 if x is None else x for p, x in given if p.pointer]

    def values(self, arguments: Sequence[Any], stream: int | None = None) -> list[Any]:
        """What is passed: pointers in place of tensors, and the stream where it belongs."""
        given = iter([_value(argument) for argument in arguments])
        return [stream if p.is_stream else next(given) for p in self.parameters]


def _value(argument: Any) -> Any:
    if argument is None:
        return 0
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr()
    if not isinstance(argument, (list, tuple)):
        return argument
    if not argument:
        return 0
    addresses = tuple(map(_address_of, argument))
    if argument[0].is_cuda:
        return _on_device(addresses, argument[0].device).data_ptr()
    return (ctypes.c_void_p * len(addresses))(*addresses)


@cache
def _on_device(addresses: tuple[int, ...], device: Any) -> Any:
    """Addresses as an array on a GPU.

    Kept for good: making it waits for the GPU, so only the first call with these tensors does, and
    a CUDA graph that was captured later finds it where it was.
    """
    import torch

    return torch.tensor(addresses, dtype=torch.int64, device=device)


@lru_cache(maxsize=64)
def find_launchers(source: str, result: str = "cudaError_t") -> dict[str, Launcher]:
    """Every `extern "C" cudaError_t name(...)`, or with another result, that a source defines.

    They are read as they stand: one that a macro writes is not found. Raises TypeError for a
    parameter of a type that Python cannot pass.
    """
    found = {}
    hidden = without_directives(hide(source))
    for match in re.finditer(_DEFINITION.format(result), hidden):
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
    for brace in reversed(list(re.finditer(r"[{}]", before))):
        if brace[0] == "{" and depth == 0:
            return re.search(r"\bextern\s*$", before[: brace.start()]) is not None
        depth += 1 if brace[0] == "}" else -1
    return False


def _parameter(launcher: str, text: str) -> Parameter:
    pointer = "*" in text
    plain = re.sub(r"\b(const|volatile|struct|__restrict__|restrict)\b|\*", " ", text)
    *kind, name = plain.split()
    if not kind:  # a type without a name
        kind, name = [name], ""
    constant = re.search(r"\bconst\b", text.partition("*")[0]) is not None
    stars = text.count("*")
    written = " ".join(re.sub(rf"\b{name}\s*$" if name else "$", "", text).split())
    parameter = Parameter(name, " ".join(kind), pointer, constant, stars == 2, written)
    if stars > 2 or not (pointer or parameter.is_stream or parameter.kind in _NUMBERS):
        raise TypeError(
            f"{launcher}: parameter {name!r} has the type {' '.join(text.split())!r}; a launcher "
            "takes pointers, arrays of pointers, integers, float, double and a cudaStream_t"
        )
    return parameter


def quick_values(launcher: Launcher, arguments: Sequence[Any]) -> tuple[list[Any], int] | None:
    """What is passed, without the stream, and the GPU: for arguments as they nearly always are.

    Returns None if they need a closer look, at which `check_arguments` finds what is wrong, if
    anything is; so for tensors on a CPU, a list of tensors, None. A launch takes a few
    microseconds, and looking twice at each argument took as many.
    """
    quick = launcher.quick
    if quick is None or len(arguments) != len(quick):
        return None
    values, index = [], None
    for (is_pointer, wanted), argument in zip(quick, arguments, strict=True):
        kind = type(argument)
        if is_pointer:
            if kind.__name__ != "Tensor" or not argument.is_contiguous():
                return None
            if wanted is not None and argument.dtype is not wanted:
                return None
            here = argument.get_device()  # -1 for a CPU
            index = here if index is None else index
            if here < 0 or here != index:
                return None
            values.append(argument.data_ptr())
        elif (kind is int and (wanted is None or argument in wanted)) or (
            kind is float and wanted is None
        ):
            values.append(argument)
        else:
            return None
    return None if index is None else (values, index)


def check_arguments(launcher: Launcher, arguments: Sequence[Any]) -> Any:
    """Compare arguments with the signature.

    Returns:
        The device that all tensors are on, or None if there is no tensor.

    Raises:
        TypeError: names the parameter, what came and what was wanted.
    """
    wanted = launcher.wanted
    if len(arguments) != len(wanted):
        raise TypeError(_wrong_number(launcher, len(arguments)))
    first: tuple[Parameter, Any] | None = None
    for parameter, argument in zip(wanted, arguments, strict=True):
        if not parameter.pointer:
            problem = _number_problem(parameter, argument)
        elif argument is None:
            continue
        elif parameter.table and not isinstance(argument, (list, tuple)):
            problem = f"must be a list of tensors, got {type(argument).__name__}"
        elif parameter.table and _alike(parameter, argument):
            first, problem = first or (parameter, argument[0].device), None
            if argument[0].device != first[1]:
                problem = _elsewhere(first, argument[0])
        else:
            problem = None
            for tensor in argument if parameter.table else [argument]:
                problem = problem or _tensor_problem(parameter, tensor)
                if not problem and first is None:
                    first = parameter, tensor.device
                elif not problem and tensor.device != first[1]:
                    problem = _elsewhere(first, tensor)
        if problem:
            raise TypeError(f"{launcher.name}(): argument {parameter.name!r} {problem}")
    return first[1] if first else None


def _wrong_number(launcher: Launcher, given: int) -> str:
    names = [p.name for p in launcher.wanted]
    missing = f": {', '.join(map(repr, names[given:]))} missing" if given < len(names) else ""
    return (
        f"{launcher.name}() takes {len(names)} arguments ({', '.join(names)}), got {given}{missing}"
    )


def _tensor_problem(parameter: Parameter, argument: Any) -> str | None:
    if not hasattr(argument, "data_ptr"):
        return f"must be a tensor or None, got {type(argument).__name__}"
    if type(argument).__name__ == "FakeTensor":  # its address is 0, whatever its device says
        return "must have memory, got a FakeTensor: a fake only describes its result"
    if parameter.dtypes and argument.dtype not in parameter.dtypes:
        names = sorted(map(_plain, parameter.dtypes))
        return f"must be a tensor of {' or '.join(names)}, got {_plain(argument.dtype)}"
    if not argument.is_contiguous():
        return f"must be contiguous, got strides {tuple(argument.stride())}"
    return None


def _elsewhere(first: tuple[Parameter, Any], tensor: Any) -> str:
    return f"must be on {first[1]} like {first[0].name!r}, got {tensor.device}"


def _alike(parameter: Parameter, tensors: Sequence[Any]) -> bool:
    """Whether all of a table are as they must be, on one device: asked without a loop in Python."""
    import torch

    return (
        set(map(type, tensors)) == {torch.Tensor}
        and all(map(torch.Tensor.is_contiguous, tensors))
        and len(set(map(_device_of, tensors))) == 1
        and (not parameter.dtypes or parameter.dtypes.issuperset(map(_dtype_of, tensors)))
    )


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _number_problem(parameter: Parameter, argument: Any) -> str | None:
    limits = parameter.limits
    usual = type(argument) is int or (limits is None and type(argument) is float)
    if not usual and not isinstance(argument, Integral if limits else Real):  # numpy's are, too
        return f"must be a number ({parameter.kind}), got {type(argument).__name__}"
    if limits and not limits[0] <= argument <= limits[1]:
        return f"must fit in {parameter.kind}, got {argument}"
    return None
