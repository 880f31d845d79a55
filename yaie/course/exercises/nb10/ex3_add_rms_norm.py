"""10.3: the residual added and normalized, in one call: both results, and what is read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import native
from yaie.course.core.cuda import poisoned, unwritten
from yaie.course.core.observe import Case, Observer

SHAPES = (
    *((1, 64, 0.5, 1), (1, 70, 0.5, 1), (2, 3, 1e-6, 1), (3, 1, 1e-6, 1), (2, 129, 1e-6, 1)),
    *((5, 576, 1e-5, 2), (4, 31, 0.5, 3)),
)
SUM = "The sum of x and residual, which the next layer adds to."
ONCE = "Read it once: take the squares of the sum while it is in a register."
VECTORS = "The check has LANES = 4: one load for every 4 numbers."


def normalize(functions: Any, x: Any, residual: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """The operator `add_rms_norm`, computed in float32 on the CPU whatever the tensors are."""
    wide = [tensor.detach().cpu().float().contiguous() for tensor in (x, residual, weight)]
    out, total = torch.empty_like(wide[0]), torch.empty_like(wide[0])
    functions.add_rms_norm(*wide, out, total, *x.shape, eps, torch.get_num_threads())
    return out.to(x), total.to(x)


fit = native.operator_by(f"{__name__}:normalize")


def cases() -> Iterator[Case]:
    for shape in SHAPES:
        yield case(*shape)
    yield case(2, 70, 1e-6, 1, ", the residual large", residual=100.0)
    yield case(2, 40, 1e-2, 1, ", all zero", x=0.0, residual=0.0)
    yield case(8, 256, 1e-6, 2, ", and its loads", costs=True)


def case(rows: int, size: int, eps: float, threads: int, words: str = "", **data: Any) -> Case:
    name = f"{rows} × {size}, eps {eps:g}, {threads} thread{'s' * (threads > 1)}{words}"
    given = {"shape": (rows, size, eps, threads), "x": 1.0, "residual": 1.0, "costs": False}
    return Case(name, **{**given, **data})


def observe(path: Path, case: Case, see: Observer) -> None:
    rows, size, eps, threads = case.shape
    generator = torch.Generator().manual_seed(size)
    x, residual = (
        by * (torch.randn(rows, size, generator=generator) + 0.3) for by in (case.x, case.residual)
    )
    weight = torch.rand(size, generator=generator) + 0.5
    out, total = poisoned(rows, size), poisoned(rows, size)
    traffic = native.run(
        see, path, "add_rms_norm", x, residual, weight, out, total, rows, size, eps, threads
    )
    whole = x.double() + residual.double()
    see.close("total", total, whole.float(), unwritten(total, SUM), rtol=1e-6, atol=1e-6)
    want = whole / torch.sqrt(whole.square().mean(-1, keepdim=True) + eps) * weight.double()
    because = f"total / √(mean(total²) + {eps:g}) × weight, the mean over {size} numbers."
    see.close("out", out, want.float(), unwritten(out, because), rtol=1e-4, atol=1e-5)
    if case.costs:
        for name in ("x", "residual"):
            see.at_most(f"bytes loaded of {name}", traffic[name].loaded, x.nbytes, ONCE)
        for name in ("x", "weight"):
            see.at_most(f"loads of {name}", traffic[name].loads, rows * size // 4, VECTORS)
