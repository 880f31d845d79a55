"""Gives the angles no axis for the heads."""

import torch

EXPECT = "an axis for the heads"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions], sin[positions]
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
