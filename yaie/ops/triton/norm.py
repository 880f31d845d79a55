"""Row kernels: RMSNorm, which reads its row from memory once.

A row is read into registers whole, so whatever is computed of it, however many times it is looked
at, costs one read. A program takes row after row, from its own number on in steps of the number of
programs; with as many programs as rows, that is one row each.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.ops.plans import made
from yaie.ops.registry import Unsupported, multiprocessors
from yaie.ops.triton.runtime import Config, fastest, launches, run_kernel

LONGEST_ROW = 32768  # in registers: 32 elements for each of 1024 threads
LARGE = 1 << 22  # elements from which on the configurations are timed


@triton.jit(do_not_specialize=["rows"])
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, rows, size, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """x / sqrt(mean(x²) + eps) × weight: the square, the sum and the product share one read."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < size
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0)
    for row in tl.range(first, rows, tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(row, tl.int64) * size
        x = tl.load(x_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x) / size + eps)
        tl.store(out_ptr + start + offsets, x * scale * weight, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def add_rms_norm_kernel(
    x_ptr,  # [rows, size], contiguous
    residual_ptr,  # [rows, size], contiguous
    weight_ptr,  # [size]
    out_ptr,  # [rows, size], contiguous
    total_ptr,  # [rows, size], contiguous
    rows,
    size,
    eps,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """RMSNorm of x + residual, and the sum: it is in registers already, so no other read.

    total = x + residual, rounded to its dtype; out = total / sqrt(mean(total²) + eps) × weight,
    computed in float32. Program p computes the rows p, p + number of programs, and so on. BLOCK is
    a power of two of at least `size`; `num_stages=STAGES` is for `tl.range`.
    """
    offsets = tl.arange(0, BLOCK)
    inside = offsets < size
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0)
    for row in tl.range(first, rows, tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(row, tl.int64) * size
        x = tl.load(x_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        # Rounded here, so that what is normalized is what the next layer adds to.
        rounded = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + start + offsets, rounded, mask=inside)
        total = rounded.to(tl.float32)
        scale = tl.rsqrt(tl.sum(total * total) / size + eps)
        tl.store(out_ptr + start + offsets, total * scale * weight, mask=inside)


@launches()
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of each row of `[rows, size]`."""
    out = made(torch.empty_like(x))
    launch_over_rows("rms_norm", rms_norm_kernel, (x, weight, out), eps)
    return out


@launches()
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, kernel: Any = add_rms_norm_kernel
) -> tuple[Tensor, Tensor]:
    """RMSNorm of each row of x + residual, and the sum; `kernel` may be another like it."""
    out, total = made(torch.empty_like(x)), made(torch.empty_like(x))
    launch_over_rows("add_rms_norm", kernel, (x, residual, weight, out, total), eps)
    return out, total


def launch_over_rows(name: str, kernel: Any, tensors: tuple[Tensor, ...], *numbers: float) -> None:
    """Launch a row kernel over the rows of the first tensor, with the fastest configuration; it
    takes the tensors, the sizes, and further numbers."""
    x = tensors[0]
    rows, size = x.shape
    if not x.numel():
        return
    if size > LONGEST_ROW:
        raise Unsupported(f"rows have at most {LONGEST_ROW} elements, got {size}")
    block, processors = triton.next_power_of_2(size), multiprocessors(x.device)

    def launch(config: Config) -> None:
        constants = dict(config)
        each = constants.pop("programs")
        grid = (min(rows, each * processors) if each else rows,)
        run_kernel(kernel, grid, *tensors, rows, size, *numbers, BLOCK=block, **constants)

    key = (name, block, x.dtype)
    launch(fastest(key, _row_configs(block), launch, large=x.numel() >= LARGE))


def _row_configs(block: int) -> list[Config]:
    """Warps that leave 8 to 64 elements to a thread; `programs` per multiprocessor, 0 for all rows.

    With few programs each loads its next row while it computes this one, in STAGES buffers.
    """
    warps = [n for n in (4, 8, 2, 16, 32, 1) if 8 <= block // (32 * n) <= 64] or [1]
    configs = [{"num_warps": n, "programs": 0, "STAGES": 1} for n in warps]
    for stages, programs in ((2, 4), (3, 2), (2, 8), (4, 2)):
        configs += [{"num_warps": n, "programs": programs, "STAGES": stages} for n in warps[:3]]
    return configs
