"""What block sizes, strides and orders of tiles cost: cases of `blocks` and `groups`."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from yaie.bench.cases import Case, Prepare
from yaie.course.lessons.ops.cases import matrices, sums

STRIDES = (1, 2, 3, 4, 6, 8, 16, 32)
BLOCK = 1024  # elements of a program that loads with a stride


def block_sizes(on_gpu: bool) -> Iterator[Case]:
    """x + y by one kernel with blocks of 32 to 32,768 elements, and with 1 to 32 warps."""
    from yaie.course.lessons.ops.triton.elementwise import add_kernel

    def add(block: int, warps: int = 4) -> Prepare:
        def launch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out, size = torch.empty_like(x), x.numel()
            add_kernel[(-(-size // block),)](x, y, out, size, BLOCK=block, num_warps=warps)
            return out

        return lambda *arguments: lambda: launch(*arguments)

    rungs = {f"BLOCK = {1 << n}": add(1 << n) for n in range(5, 16)}
    rungs |= {f"BLOCK = 4096, {warps} warps": add(4096, warps) for warps in (1, 2, 8, 16, 32)}
    sizes = ((1823, 781, torch.float32), (16384, 4096, torch.bfloat16))
    for rows, columns, dtype in sizes if on_gpu else ((7, 13, torch.float32),):
        case = sums(rows, columns, dtype)[0]
        yield replace(case, dtype=dtype, compiled=False, peers={}, rungs=rungs)


def strides(on_gpu: bool) -> Iterator[Case]:
    """The sums of 1,024 float32 each, which lie next to each other or further apart."""
    from yaie.course.lessons.ops.triton.elementwise import strided_sum_kernel

    size = 1 << 24 if on_gpu else 1 << 12
    for stride in STRIDES:

        def prepare(x: torch.Tensor, stride: int = stride) -> object:
            def launch() -> torch.Tensor:
                out = x.new_empty(size // BLOCK)
                strided_sum_kernel[(len(out),)](x, out, stride, BLOCK=BLOCK)
                return out

            return launch

        yield Case(
            "strided_sum", f"stride {stride}", lambda draw, s=stride: (draw.normal(size * s),),
            4 * size, 0, lambda x, s=stride: x[::s].double().view(-1, BLOCK).sum(1),
            writes=False, compiled=False, dtype=torch.float32, rungs={"triton": prepare},
        )  # fmt: skip


def groups(on_gpu: bool) -> Iterator[Case]:
    """The product of notebook 12, with one tile per program, in groups of 1 to 64 rows of tiles."""
    from yaie.course.lessons.ops.triton.matmul import matmul_kernel

    block_m, block_n, block_k = (128, 256, 64) if on_gpu else (16, 16, 16)

    def multiply(group: int) -> Prepare:
        def launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            (m, k), n = a.shape, b.shape[1]
            c = a.new_empty(m, n)
            grid = (-(-m // block_m) * -(-n // block_n),)
            matmul_kernel[grid](
                a, b, c, m, n, k, block_m, block_n, block_k, group, "ieee",
                num_warps=8, num_stages=3,
            )  # fmt: skip
            return c

        return lambda a, b: lambda: launch(a, b)

    rungs = {f"groups of {1 << n}": multiply(1 << n) for n in range(7)}
    dtype = torch.bfloat16 if on_gpu else torch.float32
    for size in (4096, 8192) if on_gpu else (40,):
        yield replace(matrices(size, size, dtype)[1], dtype=dtype, peers={}, rungs=rungs)
