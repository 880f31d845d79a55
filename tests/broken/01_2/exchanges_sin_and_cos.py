"""Exchanges sine and cosine."""

import torch

EXPECT = "position 0 must leave x as it is"


def apply_rotary(x, positions, cos, sin):
    sin, cos = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
