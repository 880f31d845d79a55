"""Rotary embedding: each program rotates some heads of one token."""

import triton
import triton.language as tl
from torch import Tensor

from yaie.ops.plans import made
from yaie.ops.triton.runtime import launches, run_kernel


@triton.jit
def rotary_kernel(
    x_ptr,  # [tokens, heads, head_dim], any strides
    positions_ptr,  # [tokens]
    cos_ptr,
    sin_ptr,  # [max_positions, half]
    out_ptr,  # [tokens, heads, head_dim], contiguous
    num_heads,
    half,
    token_stride,
    head_stride,
    dim_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Rotate the pairs (i, i + half) of HEADS heads by the angles of the token's position."""
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pairs = tl.arange(0, HALF)
    # The angles belong to the position: read once, used for every head.
    angle = tl.load(positions_ptr + token) * half + pairs
    cos = tl.load(cos_ptr + angle, mask=pairs < half, other=0.0)[None, :]
    sin = tl.load(sin_ptr + angle, mask=pairs < half, other=0.0)[None, :]

    inside = (heads[:, None] < num_heads) & (pairs[None, :] < half)
    # Heads, and elements of one, may lie far apart: the products need 64 bits.
    source = x_ptr + token * token_stride + heads.to(tl.int64)[:, None] * head_stride
    place = pairs.to(tl.int64)[None, :]
    first = tl.load(source + place * dim_stride, mask=inside).to(tl.float32)
    second = tl.load(source + (place + half) * dim_stride, mask=inside).to(tl.float32)

    target = out_ptr + (token * num_heads + heads[:, None]) * (2 * half) + pairs[None, :]
    tl.store(target, first * cos - second * sin, mask=inside)
    tl.store(target + half, second * cos + first * sin, mask=inside)


@launches()
def rotary(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate every head of `[tokens, heads, head_dim]` by the angles of its token's position."""
    tokens, num_heads, head_dim = x.shape
    out = made(x.new_empty(x.shape))
    if out.numel():
        block = triton.next_power_of_2(head_dim // 2)
        heads = min(triton.next_power_of_2(num_heads), max(1, 2048 // block))
        grid = (tokens, triton.cdiv(num_heads, heads))
        sizes = (num_heads, head_dim // 2, *x.stride())
        run_kernel(
            rotary_kernel, grid, x, positions, cos, sin, out, *sizes, HEADS=heads, HALF=block
        )
    return out
