"""Pairs neighbors, and writes the result half-split."""

import torch

EXPECT = "the result is"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x[..., 0::2], x[..., 1::2]
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
