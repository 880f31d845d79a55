"""The activation of the MLP, element by element.

Each program owns a run of elements. All arithmetic is in float32 and is rounded once, by the
store, so the results equal the reference's bit for bit (but for the exponential in silu).
"""

import triton
import triton.language as tl
from torch import Tensor

from yaie.ops.plans import made
from yaie.ops.triton.runtime import launches, run_kernel

BLOCK = 2048  # elements of a program: 16 for each thread of 4 warps, two 16-byte loads


@triton.jit
def silu_and_mul_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """A program computes BLOCK columns of one row of `[rows, 2 × size]`."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate_ptr = x_ptr + row * 2 * size
    gate = tl.load(gate_ptr + columns, mask=inside).to(tl.float32)
    up = tl.load(gate_ptr + size + columns, mask=inside).to(tl.float32)
    silu = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * size + columns, silu * up, mask=inside)


@launches()
def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) × up of `[rows, 2 × size]`."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = made(x.new_empty(rows, size))
    if out.numel():
        block = min(triton.next_power_of_2(size), BLOCK)
        grid = (rows, triton.cdiv(size, block))  # rows first: only axis 0 may exceed 65535
        run_kernel(silu_and_mul_kernel, grid, x, out, size, BLOCK=block)
    return out
