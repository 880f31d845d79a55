"""Rotary position embedding, in plain PyTorch."""

from __future__ import annotations

import torch


def rotary_tables(
    head_dim: int, max_positions: int, base: float = 10000.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary angles, float32 `[max_positions, head_dim / 2]` each.

    Position `p` turns pair `i` by `p * base ** (-2 i / head_dim)` radians. The tables stay in
    float32 whatever the model's dtype: float16 has 11 bits, too few for the angle of position
    5000. Source: Su et al., "RoFormer", 2021.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def apply_rotary(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate every head of `x` by the angles of its token's position.

    The half-split layout of Llama models: component `i` of a head is paired with component
    `i + head_dim / 2`, and each pair is rotated in its plane.

    Args:
        x: queries or keys, `[tokens, heads, head_dim]`.
        positions: position of each token in its own sequence, int64 `[tokens]`.
        cos, sin: tables from `rotary_tables`, float32 `[max_positions, head_dim / 2]`.

    Returns:
        The rotated tensor, with the shape and dtype of `x`, rounded once, at the end.
    """
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
