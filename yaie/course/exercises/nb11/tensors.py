"""What the exercises in Triton share: where tensors lie, and what programs load and store."""

import math
import mmap
from typing import Any

import numpy as np
import torch

from yaie.course.core.observe import Observer
from yaie.course.core.triton import Access, Trace

MARGIN = 4096  # elements of nothing around each tensor
AROUND = 3 << 30  # elements around a large tensor, so that an index that wrapped around is in none


def spaced(tensor: Any) -> Any:
    """The same numbers in memory far from all other tensors, with NaN around them."""
    room = torch.full((tensor.numel() + 2 * MARGIN,), torch.nan).to(tensor.dtype)
    middle = room[MARGIN : MARGIN + tensor.numel()].view(tensor.shape)
    return middle.copy_(tensor)


def among(tensor: Any, num_rows: int, first: int) -> Any:
    """The same numbers, as some of `num_rows` rows in memory that is taken when touched.

    Args:
        tensor: `[n, rows, ...]`; of the result row `first` and those after it are these rows.
    """
    shape = (len(tensor), num_rows, *tensor.shape[2:])
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    size = math.prod(shape)
    room = mmap.mmap(-1, tensor.itemsize * (size + 2 * AROUND), flags=flags)
    large = torch.frombuffer(room, dtype=tensor.dtype)[AROUND : AROUND + size].view(shape)
    large[:, first : first + tensor.shape[1]] = tensor
    return large


def from_row(first: int, tensor: Any) -> Any:
    """The rows `[rows, columns]` as those that follow `first` others."""
    return among(tensor[None], first + len(tensor), first)[0] if first else tensor


def poisoned(*shape: int, dtype: Any = None, value: float = torch.nan) -> Any:
    """An output in which every element that is not written shows."""
    return spaced(torch.full(shape, value, dtype=dtype or torch.float32))


def randn(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return spaced(torch.randn(*shape, generator=generator).to(dtype or torch.float32))


def see_stored_once(see: Observer, trace: Trace, name: str) -> None:
    """No element is stored twice: which value stays would be chance."""
    owner: dict[int, Access] = {}
    twice, problem = set(), ""
    for access in trace.of(name, "store"):
        for element in np.unique(access.elements[access.mask]).tolist():
            first = owner.setdefault(element, access)
            if first is not access:
                twice.add(element)
                problem = problem or (
                    f"begin with {name}[{element:,}], which {first.who} and "
                    f"{access.who} both store\n    {access.text}"
                )
    why = (
        "The last one wins here, since the interpreter runs one program after another. A GPU does "
        "not say which program is last."
    )
    see.note(f"elements of {name} that are stored twice", sorted(twice), problem, why)


def see_loaded(see: Observer, trace: Trace, name: str, num_bytes: int, why: str) -> None:
    """A tensor is loaded no more often than it has to be."""
    see.at_most(f"bytes of {name} that are loaded", trace.num_bytes("load", name), num_bytes, why)


def see_rows_begin(see: Observer, trace: Trace, name: str, columns: int) -> None:
    """Every load of a row begins where a row begins."""
    loads = [(int(access.elements.ravel()[0]), access) for access in trace.of(name, "load")]
    wrong = [(first, access) for first, access in loads if first % columns]
    problem = ""
    if wrong:
        first, access = wrong[0]
        problem = f"begins inside a row: {access.who} begins at {name}[{first:,}]"
        problem = f"{problem}\n    {access.text}"
    why = f"Rows have {columns:,} elements, so row r begins at element {columns:,} × r."
    see.note(f"a load of {name}", sorted({first for first, _ in wrong}), problem, why)


def beyond_a_row(access: Access) -> str:
    """What to say of a kernel over rows that goes past the end of a tensor."""
    if access.elements.ravel()[0] >= access.num_elements:
        return (
            "No such row exists. The loop ends at `rows`, and row r begins at element r × row "
            "length, whatever BLOCK is."
        )
    return (
        "BLOCK is the next power of two, so a block is longer than its row. Every load and every "
        "store needs a mask that excludes the lanes past the row's end."
    )
