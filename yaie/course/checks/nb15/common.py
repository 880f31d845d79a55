"""What the checks of notebook 15 share: factors, what a report counts, the wrong products."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, given

if TYPE_CHECKING:
    from yaie.emulator import Report

Mistakes = list[tuple[Any, str]]
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def factors(m: int, n: int, k: int, suffix: str = "f32") -> tuple[Any, Any, Any]:
    """a, b, and a result that holds NaN."""
    import torch

    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[suffix]
    generator = torch.Generator().manual_seed(m + n + k)
    a = torch.randn(m, k, generator=generator).to(dtype)
    b = torch.randn(k, n, generator=generator).to(dtype)
    return a, b, poisoned(m, n, dtype=dtype)


def product(a: Any, b: Any) -> Any:
    """What must come out: a b in float64, in the dtype of a."""
    return (a.double() @ b.double()).to(a.dtype)


def run(
    path: Path,
    name: str,
    given_factors: tuple[Any, Any, Any],
    order: str,
    explain: Explain,
    mistakes: Mistakes,
    because: str,
    suffix: str = "f32",
    checked: bool = True,
) -> Report | None:
    """One launch and what it must give; a result that is wrong is compared with the mistakes'."""
    a, b, c = given_factors
    (m, k), n = a.shape, b.shape[1]
    with given(f"a is {m} × {k}, b is {k} × {n}, {suffix}, threads in {order} order"):
        report = launch(
            path, f"{name}_{suffix}", a, b, c, m, n, k,
            explain=explain, order=order, checked=checked,
        )  # fmt: skip
        if c.isnan().any():
            because = "NaN was there before: nobody wrote it. Every element of c is written."
        tolerance = TOLERANCE[suffix]
        close(c, product(a, b), "c", because=because, mistakes=mistakes, rtol=tolerance,
              atol=tolerance)  # fmt: skip
    return report


def units(report: Report, memory: str, kind: str) -> tuple[int, int]:
    """How many requests of one kind there were, and how many sectors or wavefronts they cost."""
    chosen = [a for a in report.accesses if (a.memory, a.kind) == (memory, kind)]
    return sum(a.requests for a in chosen), sum(a.units for a in chosen)
