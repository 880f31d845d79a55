"""Exercise 01.2: Rotate queries and keys by their positions.

Every head of every token is a list of points in a plane: component i and component i + head_dim /
2 are the coordinates of point i. Rotate each point by the angle that the tables give for the
token's position. The tokens may belong to several sequences and need not begin at 0, so look the
angles up at `positions`.

You have
- `x`: `[tokens, heads, head_dim]`
- `positions`: int64 `[tokens]`
- `cos`, `sin`: float32 `[max_positions, head_dim / 2]`; row p belongs to position p, column i to
  pair i
- `cos[positions]`: the rows of these positions, `[tokens, head_dim / 2]`
- `x.chunk(2, dim=-1)`: the two halves of the last axis; `torch.cat((a, b), dim=-1)` joins them
- `x.unsqueeze(1)`: the same numbers with an axis of length 1 more, in second place

In a terminal: yaie check 01.2, yaie hint 01.2, yaie reset 01.2.
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
    raise NotImplementedError("Exercise 01.2: Rotate queries and keys by their positions")
