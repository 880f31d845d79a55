"""Pairs neighbors, as the original RoFormer does and Llama checkpoints do not."""

import torch

EXPECT = "the interleaved layout"


def apply_rotary(x, positions, cos, sin):
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x[..., 0::2], x[..., 1::2]
    rotated = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(
        -2
    )
    return rotated.to(x.dtype)
