"""Pairs the right components, and writes the pairs side by side."""

import torch

EXPECT = "in the wrong order"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(
        -2
    )
    return rotated.to(x.dtype)
