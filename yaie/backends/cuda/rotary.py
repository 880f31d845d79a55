"""Rotary embedding by a CUDA C++ kernel."""

from __future__ import annotations

import torch

from yaie.backends.cuda.launching import launch


def rotary(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Turn each head of `[tokens, heads, head_dim]`; x may be a part of a larger tensor."""
    if x.stride(2) != 1:
        x = x.contiguous()
    out = x.new_empty(x.shape)
    tokens, heads, head_dim = x.shape
    launch(
        *("rotary/rotary.cu", "rotary", x.dtype, _memory(x), positions, cos, sin, out),
        *(tokens, heads, head_dim // 2, x.stride(0), x.stride(1)),
    )
    return out


def _memory(x: torch.Tensor) -> torch.Tensor:
    """All memory from the first element of x to its last, as launchers take it: contiguous."""
    if x.is_contiguous():
        return x
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((last + 1 if x.numel() else 0,), (1,))
