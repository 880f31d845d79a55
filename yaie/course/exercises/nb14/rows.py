"""What the exercises on rows share: random rows, and how a case is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from yaie.course.core.cuda import SUFFIXES, reserved
from yaie.course.core.observe import Case

DTYPES = {suffix: name for name, suffix in SUFFIXES.items()}
COSTS = {
    "global load": "Neighboring threads should read neighboring columns.",
    "global store": "Neighboring threads should write neighboring columns.",
    "shared load": "Neighboring threads should read neighboring numbers of shared memory.",
    "shared store": "Neighboring threads should write neighboring numbers of shared memory.",
}
MANY = 2**21 + 1  # rows of 1,024 columns: the last one begins at element 2**31


def rows_of(rows: int, columns: int, suffix: str = "f32") -> Any:
    """Random numbers between 0.5 and 1.5."""
    generator = torch.Generator().manual_seed(columns)
    x = torch.rand(rows, columns, generator=generator) + 0.5
    return x.to(getattr(torch, DTYPES[suffix]))


def far(rows: int, columns: int, suffix: str) -> Any:
    """Zeros that take no memory, and ones in the last row; None if the machine refuses them."""
    x = reserved(rows * columns, getattr(torch, DTYPES[suffix]))
    if x is not None:
        x[-columns:] = 1
        x = x.view(rows, columns)
    return x


def on_grid(shape: Sequence[int], words: str = "", suffix: str = "f32", **data: Any) -> Case:
    """A case of (rows, columns, thread blocks, threads of each)."""
    rows, columns, blocks, threads = shape
    grid = f"{blocks:,} thread block{'s' * (blocks > 1)} of {threads} thread{'s' * (threads > 1)}"
    name = f"{rows:,} × {columns:,}, {grid}" + f", {suffix}" * (suffix != "f32") + words
    data = {"costs": False, "how": {}, "order": "forward", **data}
    size = {"rows": rows, "columns": columns, "blocks": blocks, "threads": threads}
    return Case(name, suffix=suffix, **size, **data)
