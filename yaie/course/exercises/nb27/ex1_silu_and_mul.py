"""27.1: a kernel from the first line to the last, silu of the gates times the ups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

NAME = "silu_and_mul_simple"
fit = cuda.operator_by("yaie.ops.cuda.elementwise:silu_and_mul", name=NAME)
# Half of the distance between two neighbors: the largest error of one rounding, but not of two.
ROUNDED = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
COMPUTED = 1e-6  # the error of expf and a few operations in float32
MORE_THREADS = (
    "No thread wrote them: rows × size threads are needed, and a thread block has only THREADS."
)


def cases() -> Iterator[KernelCase]:
    for rows, size in ((3, 40), (1, 1), (5, 7), (2, 256), (33, 31), (4, 576)):
        yield case(rows, size)
    yield case(2, 40, scale=60.0)
    for dtype in ("float16", "bfloat16"):
        yield case(7, 33, dtype)
    yield case(9, 100, how={"order": "reverse"})
    yield case(64, 64, costs=True)


def case(
    rows: int, size: int, dtype: str = "float32", scale: float = 2.0, **data: Any
) -> KernelCase:
    large = ", gates above 100" if scale > 10 else ""
    row, plural = "row" if rows == 1 else "rows", "" if size == 1 else "s"
    name = f"{rows} {row} of {size} gate{plural} and {size} up{plural} in {dtype}{large}"
    return KernelCase(name, rows=rows, size=size, dtype=dtype, scale=scale, **data)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, size = case.rows, case.size
    new = torch.Generator().manual_seed(rows * 1000 + size)
    x = (case.scale * torch.randn(rows, 2 * size, generator=new)).to(getattr(torch, case.dtype))
    out = cuda.poisoned(rows, size, dtype=x.dtype)
    explain = {
        "out_of_bounds": f"x has {rows} rows of {2 * size}, out {rows} rows of {size}: "
        f"{rows * size} threads have an element.",
        "race": "Two threads write one element: each needs one of its own.",
        "cudaErrorInvalidConfiguration": f"{cuda.EXPLAIN['cudaErrorInvalidConfiguration']} out has "
        f"{rows * size} elements here.",
    }
    name = f"silu_and_mul_simple_{cuda.SUFFIXES[case.dtype]}"
    report = cuda.run(see, path, name, x, out, rows, size, explain=explain, **case.how)
    gate, up = x.double().chunk(2, dim=1)
    want = gate / (1.0 + torch.exp(-gate)) * up
    because = (
        f"In row r of x, gate c is element c and its up element {size} + c. Compute in float32 and "
        "round once."
    )
    because = cuda.unwritten(out, MORE_THREADS) if cuda.unwritten(out) else because
    rtol = ROUNDED[case.dtype] + COMPUTED
    see.close("out", out.double(), want, because, rtol=rtol, atol=1e-7)
    if case.costs:
        sectors = max((a.per_request for a in cuda.accesses(report, name="x")), default=0)
        ideal = "32 neighbors of 4 bytes are 4 sectors: two rows at most are twice that."
        see.at_most(
            "the number of sectors that a request of a warp for x touches", sectors, 8, ideal
        )


def draw(path: Path) -> Any:
    """The bytes of all sectors that the kernel touches, beside those of two operators of torch."""
    from yaie.course.viz.grid import draw_traffic

    x, out = torch.randn(4, 512), cuda.poisoned(4, 256)
    report = cuda.report_of(path, "silu_and_mul_simple_f32", x, out, 4, 256)
    own = {
        words: 32 * sum(access.units for access in cuda.accesses(report, kind=kind))
        for words, kind in (("read", "load"), ("written", "store"))
    }
    # silu reads the gates and writes its result, which the product reads with the up elements.
    two = {"read": x.nbytes + out.nbytes, "written": 2 * out.nbytes}
    return draw_traffic({"silu, then a product": two, "your kernel": own})
