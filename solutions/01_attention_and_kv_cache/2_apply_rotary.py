"""Solution of exercise 01.2: Rotate queries and keys by their positions.

Every head of every token is a list of points in a plane: component i and component i + head_dim /
2 are the coordinates of point i. Rotate each point by the angle that the tables give for the
token's position. The tokens may belong to several sequences and need not begin at 0, so look the
angles up at `positions`.

Generated from apply_rotary in yaie/ops/reference/rotary.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch


def apply_rotary(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate every head of `x` by the angles of its token's position.

    The half-split layout of Llama models: component `i` of a head is paired with component
    `i + head_dim / 2`, and each pair is rotated in its plane.

    Args:
        x: queries or keys, `[tokens, heads, head_dim]`.
        positions: position of each token in its own sequence, int64 `[tokens]`.
        cos, sin: tables from `rotary_tables`, float32 `[max_positions, head_dim / 2]`.

    Returns:
        The rotated tensor, with the shape and dtype of `x`, rounded once, at the end.
    """
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)
