"""Turns only the first coordinate of each pair."""

import torch

EXPECT = "left as it is"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second), dim=-1)
    return rotated.to(x.dtype)
