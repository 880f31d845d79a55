"""Rounds the tables to the dtype of x before the products."""

import torch

EXPECT = "round once, at the end"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
