"""Takes the first rows of the tables, whatever the positions."""

import torch

EXPECT = "do not begin at 0"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[: len(x)].unsqueeze(1), sin[: len(x)].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
