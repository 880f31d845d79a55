"""Sums of two tensors, and of every stride-th element: each program owns a run of elements.

All arithmetic is in float32 and is rounded once, by the store, so the results equal the
reference's bit for bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from yaie.ops.triton.elementwise import BLOCK
from yaie.ops.triton.runtime import launches


@triton.jit
def add_kernel(
    x_ptr,  # [size]
    y_ptr,  # [size]
    out_ptr,  # [size]
    size,
    BLOCK: tl.constexpr,
):
    """out = x + y; program p computes the elements from p × BLOCK on, BLOCK of them if they exist.

    The grid has as many programs as it takes, on axis 0.
    """
    # 64 bits, because an offset into a large tensor does not fit 32.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=inside)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """The larger of x + y and 0; NaN stays NaN."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    total = tl.maximum(x + y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + offsets, total, mask=inside)


@triton.jit
def strided_sum_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    """Program p sums up BLOCK elements, `stride` apart: out[p] of x[p × BLOCK × stride], …"""
    elements = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * stride
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + elements)))


@launches()
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y."""
    return _add(add_kernel, x, y)


@launches()
def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(x + y, 0) in one pass: what add would write, relu does not have to read."""
    return _add(add_relu_kernel, x, y)


def _add(kernel: triton.JITFunction, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    if out.numel():
        grid = (triton.cdiv(out.numel(), BLOCK),)
        kernel[grid](x, y, out, out.numel(), BLOCK=BLOCK)
    return out
