"""The library of `csrc/cpu/`, and matrices in the formats that it multiplies.

Its structs consist of addresses and numbers of 8 bytes, so that a list of ints is one.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from yaie.build import cpu
from yaie.emulator import CompileError
from yaie.ops.checks import FP8
from yaie.ops.registry import Declined, Unsupported

FLOATS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # the kinds of csrc/cpu/lanes.h
CACHES = FLOATS | {FP8: 6}  # of keys and values
# GGUF's formats: the kind, and the bytes of a group of 32 numbers.
GROUPS = {"q8_0": (3, 34), "q4_0": (4, 18), "q4_1": (5, 20)}
GROUP = 32


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix as they are stored: floats `[rows, size]`, or bytes `[rows, bytes]` in the
    format `form`, one of GROUPS, ordered by `interleaved`."""

    data: torch.Tensor
    form: str | None = None

    @property
    def size(self) -> int:
        """The numbers of a row."""
        width = self.data.shape[-1]
        return width if self.form is None else width // GROUPS[self.form][1] * GROUP

    def part(self) -> list[int]:
        """The struct `Part`."""
        kind = FLOATS[self.data.dtype] if self.form is None else GROUPS[self.form][0]
        return [self.data.data_ptr(), len(self.data), kind]


def matrix(parts: Sequence[Rows], bias: torch.Tensor | None) -> list[int]:
    """The struct `Matrix` of up to three parts; the bias is float32. Keeps nothing alive."""
    flat = [number for part in parts for number in part.part()]
    return [*flat, *[0] * (9 - len(flat)), parts[0].size, 0 if bias is None else bias.data_ptr()]


def interleaved(data: torch.Tensor, form: str | None) -> Rows:
    """Rows of a file in the order that products read: rows of 4 bits are interleaved in place."""
    rows = Rows(data, form)
    call("interleave", struct(rows.part()), rows.size)
    return rows


def struct(fields: Sequence[int]) -> ctypes.Array:
    """Addresses and numbers as they lie in a struct."""
    return (ctypes.c_int64 * len(fields))(*fields)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the library, with as many threads as torch uses as its last argument.

    Tensors, which must be contiguous, and structs are passed by address, floats as doubles.
    Raises Unsupported if the library cannot be built.
    """
    try:
        function = getattr(cpu.library(), name)
    except CompileError as error:
        raise Unsupported(str(error)) from None
    return function(*map(_passed, (*arguments, torch.get_num_threads())))


def _passed(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    return ctypes.c_int64(argument) if isinstance(argument, int) else argument


def wide(x: torch.Tensor) -> torch.Tensor:
    """x as contiguous float32, perhaps x itself; Declined if not of FLOATS, or not on the CPU."""
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        names = "float32, float16 and bfloat16 on the CPU"
        raise Declined(f"the C++ back end takes {names}, got {x.dtype} on {x.device}")
    return x.float().contiguous()


def padded(x: torch.Tensor) -> torch.Tensor:
    """The rows of x as `wide` makes them, each up to a whole vector."""
    rest = -x.shape[-1] % call("lanes")
    return wide(torch.nn.functional.pad(x, (0, rest)) if rest else x)


def product(x: torch.Tensor, parts: Sequence[Rows], bias: torch.Tensor | None) -> torch.Tensor:
    """`[tokens, size]` by the rows of a matrix, computed in float32, in the dtype of x."""
    bias = None if bias is None else bias.float()
    out = torch.empty(len(x), sum(len(part.data) for part in parts))
    call("product", struct(matrix(parts, bias)), wide(x), len(x), out)
    return out.to(x.dtype)


def embed(rows: Rows, token_ids: torch.Tensor) -> torch.Tensor:
    """Rows of an embedding as float32 `[tokens, size]`."""
    out = torch.empty(len(token_ids), rows.size)
    call("embed", struct(rows.part()), rows.size, token_ids, len(token_ids), out)
    return out
