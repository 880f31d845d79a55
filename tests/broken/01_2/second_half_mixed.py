"""Mixes up the second half."""

import torch

EXPECT = "should be second * cos + first * sin"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, first * cos + second * sin), dim=-1)
    return rotated.to(x.dtype)
