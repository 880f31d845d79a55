"""Keeps the tables in float16."""

import torch

EXPECT = "rounded to float16"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos.half()[positions].unsqueeze(1), sin.half()[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
