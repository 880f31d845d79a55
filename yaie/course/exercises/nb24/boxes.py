"""What the exercises of notebook 24 share: a matrix times a vector, by boxes."""

from __future__ import annotations

from pathlib import Path

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

NAME = "row_product"


def matrix_of(rows: int, columns: int, suffix: str = "f16") -> KernelCase:
    """A case of x [rows, columns] and w [columns]."""
    words = f"x is {rows} × {columns:,}, {suffix}"
    return KernelCase(words, size=(rows, columns), suffix=suffix)


def see_product(
    see: Observer, path: Path, case: KernelCase, explain: cuda.Explain, because: str
) -> None:
    """Multiply, and note every element of the product."""
    rows, columns = case.size
    generator = torch.Generator().manual_seed(rows + columns)
    dtype = cuda.dtype_of(case.suffix)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    w = torch.randn(columns, generator=generator).to(dtype)
    out = cuda.poisoned(rows)
    launcher = f"{NAME}_{case.suffix}"
    cuda.run(see, path, launcher, x, w, out, rows, columns, explain=explain, **case.how)
    want = (x.double() @ w.double()).float()
    see.close("out", out, want, cuda.unwritten(out, because), rtol=1e-4, atol=1e-3)
