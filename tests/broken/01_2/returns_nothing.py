"""Turns in place, and returns nothing."""

import torch

EXPECT = "returned None"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = x.clone()
    rotated[:] = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
