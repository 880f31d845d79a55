"""What the exercises of notebook 15 share: factors, the product in float64, counts of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from yaie.course.core.cuda import SUFFIXES, Explain, poisoned, run, unwritten
from yaie.course.core.observe import Case, Observer
from yaie.emulator import Report

TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def product_of(
    m: int, n: int, k: int, suffix: str = "f32", costs: bool = False, ones: bool = False, **how: Any
) -> Case:
    """A case of a [m, k] and b [k, n]."""
    words = f"a is {m} × {k:,}, b is {k:,} × {n}, {suffix}" + ", all ones" * ones
    size, kind = {"m": m, "n": n, "k": k}, {"suffix": suffix, "costs": costs, "ones": ones}
    return Case(words + ", and its costs" * costs, **size, **kind, order="forward", how=how)


def factors(m: int, n: int, k: int, suffix: str = "f32", ones: bool = False) -> tuple:
    """a, b, and a result that holds NaN."""
    dtype = next(getattr(torch, name) for name in SUFFIXES if SUFFIXES[name] == suffix)
    generator = torch.Generator().manual_seed(m + n + k)
    a = torch.randn(m, k, generator=generator)
    b = torch.randn(k, n, generator=generator)
    if ones:
        a, b = torch.ones_like(a), torch.ones_like(b)
    return a.to(dtype), b.to(dtype), poisoned(m, n, dtype=dtype)


def see_product(
    see: Observer, path: Path, name: str, case: Case, explain: Explain, because: str
) -> Report | None:
    """Multiply, and note every element of c; the report of a checked run."""
    a, b, c = factors(case.m, case.n, case.k, case.suffix, case.ones)
    report = run(
        see, path, f"{name}_{case.suffix}", a, b, c, case.m, case.n, case.k,
        explain=explain, order=case.order, **case.how,
    )  # fmt: skip
    tolerance = TOLERANCE[case.suffix]
    want = (a.double() @ b.double()).to(a.dtype)
    see.close("c", c, want, unwritten(c, because), rtol=tolerance, atol=tolerance)
    return report


def units(report: Report, memory: str, kind: str) -> tuple[int, int]:
    """How many requests of one kind there were, and how many sectors or wavefronts they cost."""
    chosen = [a for a in report.accesses if (a.memory, a.kind) == (memory, kind)]
    return sum(a.requests for a in chosen), sum(a.units for a in chosen)
