"""What the exercises of notebook 01 share: tables of angles, and words for heads."""

import torch
from torch import Tensor

from yaie.course.exercises.oracles import rotary


def tables(
    dim: int, positions: int, base: float, frequencies: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[positions, dim / 2]`, computed in float64, kept in float32."""
    axis = torch.eye(2).repeat_interleave(dim // 2, dim=1)[0]  # each pair lies at (1, 0)
    turned = rotary(axis.expand(positions, 1, dim), range(positions), base, frequencies)
    cos, sin = turned.squeeze(1).float().chunk(2, dim=1)
    return cos, sin


def heads_in_words(heads: int, kv_heads: int, head_dim: int) -> str:
    plural = ["" if count == 1 else "s" for count in (heads, kv_heads)]
    counts = f"{heads} query head{plural[0]}, {kv_heads} KV head{plural[1]}"
    return f"{counts}, head_dim {head_dim}"
