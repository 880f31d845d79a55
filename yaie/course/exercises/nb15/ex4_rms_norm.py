"""15.4: the formula of RMSNorm, in float32 whatever the dtype, at sizes that fit nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb15.rows import COSTS

fit = cuda.operator_by("yaie.ops.cuda.norm:rms_norm", name="rms_norm_simple")
THREADS = 256
SHAPES = ((1, 256, 0.5), (3, 700, 0.5), (2, 1, 1e-6), (2, 33, 1e-6), (2, 1025, 1e-6), (0, 8, 1e-6))
TOGETHER = "All threads of the thread block call block_sum, equally often."
EXPLAIN = {
    **{"divergent_barrier": TOGETHER, "shuffle": TOGETHER},
    "out_of_bounds": "A row has `size` columns, and some rows have fewer than there are threads.",
}


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(rows_of(*shape) for shape in SHAPES))
    for suffix in cuda.SUFFIXES.values():
        yield rows_of(2, 781, 1e-6, suffix, rtol=cuda.rounding(suffix))
    # squares that float16 cannot hold, and more of them than bfloat16 can count
    large = {"how": {"checked": False}}
    yield rows_of(1, 2048, 1e-6, "f16", fill=300.0, rtol=2e-3, **large)
    yield rows_of(1, THREADS * 600, 1e-6, "bf16", fill=1.0, rtol=2e-2, **large)
    yield rows_of(2, 700, 1e-6, "f16", each=True, rtol=2e-3)
    yield rows_of(2, 1024, 1e-6, costs=True)


def rows_of(
    rows: int, size: int, eps: float, suffix: str = "f32", fill: float | None = None, **data: Any
) -> KernelCase:
    words = f"{rows} × {size:,}, eps {eps:g}, {suffix}" + (f", all {fill:g}" if fill else "")
    words += ", and its costs" * ("costs" in data) + ", each result" * ("each" in data)
    shape = {"rows": rows, "size": size, "eps": eps, "fill": fill}
    return KernelCase(words, **shape, suffix=suffix, **{"rtol": 1e-5, "each": False, **data})


def inputs(rows: int, size: int, suffix: str, fill: float | None = None) -> tuple[Any, Any, Any]:
    dtype = cuda.dtype_of(suffix)
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(rows, size, generator=generator) + 0.3
    weight = torch.rand(size, generator=generator) + 0.5
    if fill is not None:
        x, weight = torch.full_like(x, fill), torch.ones_like(weight)
    return x.to(dtype), weight.to(dtype), cuda.poisoned(rows, size, dtype=dtype)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, size, eps = case.rows, case.size, case.eps
    x, weight, out = inputs(rows, size, case.suffix, case.fill)
    name = f"rms_norm_simple_{case.suffix}"
    report = cuda.run(see, path, name, x, weight, out, rows, size, eps, explain=EXPLAIN, **case.how)
    root = torch.sqrt(x.double().square().mean(-1, keepdim=True) + eps)
    want = (x.double() / root * weight.double()).to(x.dtype)
    because = f"x / sqrt(mean(x²) + eps) × weight, the mean over {size:,} columns, in float."
    see.close("out", out, want, cuda.unwritten(out, because), rtol=case.rtol, atol=case.rtol / 10)
    if case.each:
        missed = int((out != want).sum())
        see.true(
            "each result", missed <= out.numel() // 20,
            f"should be the nearest float16, and {missed:,} of {out.numel():,} are not",
            "Compute in float and round once, at the end: then hardly any result misses it.",
        )  # fmt: skip
    if case.costs:
        cuda.cheap(see, report, {kind: COSTS[kind] for kind in ("global load", "global store")})


def draw(path: Path) -> Any:
    x, weight, out = inputs(2, 1024, "f32")
    return cuda.draw_lines(path, "rms_norm_simple_f32", x, weight, out, 2, 1024, 1e-6)
