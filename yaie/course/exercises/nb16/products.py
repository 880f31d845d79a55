"""What the exercises of notebook 16 share: factors, the product in float64, counts of a report."""

from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.emulator import Report

TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def product_of(
    m: int, n: int, k: int, suffix: str = "f32", ones: bool = False, **data: Any
) -> KernelCase:
    """A case of a [m, k] and b [k, n]; `each`: nearly all of c must be rounded only once."""
    words = f"a is {m} × {k:,}, b is {k:,} × {n}, {suffix}" + ", all ones" * ones
    words += ", and its costs" * data.get("costs", False)
    return KernelCase(words, **{"each": False, **data}, size=(m, n, k), suffix=suffix, ones=ones)


def factors(m: int, n: int, k: int, suffix: str = "f32", ones: bool = False) -> tuple:
    """a, b, and a result that holds NaN."""
    dtype = cuda.dtype_of(suffix)
    generator = torch.Generator().manual_seed(m + n + k)
    a = torch.randn(m, k, generator=generator)
    b = torch.randn(k, n, generator=generator)
    if ones:
        a, b = torch.ones_like(a), torch.ones_like(b)
    return a.to(dtype), b.to(dtype), cuda.poisoned(m, n, dtype=dtype)


def see_barriers(see: Observer, report: Report, iterations: int) -> None:
    """Note the barriers per iteration; `iterations` are those of all thread blocks."""
    why = (
        "Two are needed: one before the tiles are read, one before the next iteration writes "
        "them. Between these two no thread writes a tile, so none needs to wait."
    )
    waits = report.num_barriers / iterations
    see.at_most("the number of barriers per iteration", waits, 2, why)


def see_product(
    see: Observer, path: Path, name: str, case: KernelCase, explain: cuda.Explain, because: str
) -> Report | None:
    """Multiply, and note every element of c; the report of a checked run."""
    a, b, c = factors(*case.size, case.suffix, case.ones)
    launcher = f"{name}_{case.suffix}"
    report = cuda.run(see, path, launcher, a, b, c, *case.size, explain=explain, **case.how)
    tolerance = TOLERANCE[case.suffix]
    want = (a.double() @ b.double()).to(a.dtype)
    see.close("c", c, want, cuda.unwritten(c, because), rtol=tolerance, atol=tolerance)
    if case.each:
        missed = int((c != want).sum())
        see.true(
            "each element of c", missed <= c.numel() // 20,
            f"should be the nearest {str(c.dtype)[6:]}, and {missed:,} of {c.numel():,} are not",
            "Add in float32 and round once, at the end: then hardly any element misses it.",
        )  # fmt: skip
    return report
