"""Rotary embedding by a CUDA C++ kernel."""

from __future__ import annotations

from torch import Tensor

from yaie.ops.cuda.launching import launch, memory
from yaie.ops.plans import made


def rotary(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each head of `[tokens, heads, head_dim]`; x may be a part of a larger tensor."""
    if x.stride(2) != 1:
        x = x.contiguous()
    out = made(x.new_empty(x.shape))
    tokens, heads, head_dim = x.shape
    launch(
        *("rotary/rotary.cu", "rotary", x.dtype, memory(x), positions, cos, sin, out),
        *(tokens, heads, head_dim // 2, x.stride(0), x.stride(1)),
    )
    return out
