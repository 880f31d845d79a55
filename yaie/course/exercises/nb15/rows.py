"""What the exercises on rows share: random rows, and how a case is named."""

from collections.abc import Sequence
from typing import Any

import torch

from yaie.course.core.cuda import KernelCase, dtype_of, reserved

COSTS = {
    "global load": "Neighboring threads should read neighboring columns.",
    "global store": "Neighboring threads should write neighboring columns.",
    "shared load": "Neighboring threads should read neighboring numbers of shared memory.",
    "shared store": "Neighboring threads should write neighboring numbers of shared memory.",
}
MANY = 2**21 + 1  # rows of 1,024 columns: the last one begins at element 2**31
FAR = f"Row {MANY - 1:,} begins at element 2³¹, beyond what an int can hold."


def rows_of(rows: int, columns: int, suffix: str = "f32") -> Any:
    """Random numbers between 0.5 and 1.5."""
    generator = torch.Generator().manual_seed(columns)
    return (torch.rand(rows, columns, generator=generator) + 0.5).to(dtype_of(suffix))


def far(rows: int, columns: int, suffix: str) -> Any:
    """Zeros that take no memory, and ones in the last row."""
    x = reserved(rows * columns, dtype_of(suffix)).view(rows, columns)
    x[-1] = 1
    return x


def on_grid(shape: Sequence[int], words: str = "", suffix: str = "f32", **data: Any) -> KernelCase:
    """A case of (rows, columns, thread blocks, threads of each); `make` makes its rows."""
    rows, columns, blocks, threads = shape
    grid = f"{blocks:,} thread block{'s' * (blocks > 1)} of {threads} thread{'s' * (threads > 1)}"
    name = f"{rows:,} × {columns:,}, {grid}" + f", {suffix}" * (suffix != "f32") + words
    return KernelCase(name, shape=shape, suffix=suffix, **{"make": rows_of, **data})


def far_row() -> KernelCase:
    """The thread block of the last of many rows alone."""
    how = {"checked": False, "most_blocks": 1, "order": "reverse"}
    words = ", of which the last one runs here"
    return on_grid((MANY, 1024, MANY, 32), words, "f16", make=far, how=how)
