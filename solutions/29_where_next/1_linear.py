"""Solution of exercise 29.1: Split a linear layer in both ways.

Compute a rank's part of a linear layer, split by its outputs and split by its inputs. The second
split needs what the other ranks have: call `all_reduce` once, at the right place, and be careful
with the bias.

Generated from column_parallel, row_parallel in yaie/course/lessons/split_linear.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import linear

from yaie.model.shards import part


def column_parallel(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rank: int, size: int
) -> torch.Tensor:
    """A rank's columns of `x @ weight.T + bias`. Nothing is sent.

    Args:
        x: `[tokens, in]`, the same on every rank.
        weight, bias: the whole layer's, `[out, in]` and `[out]` or None; `size` divides out. Only
            this rank's part of them may be used: on a real rank there is nothing else.

    Returns:
        `[tokens, out / size]`: rank 0 has the first columns of the result, rank 1 the next.
    """
    own = part(len(weight), rank, size)
    return linear(x, weight[own], None if bias is None else bias[own])


def row_parallel(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rank: int,
    size: int,
    all_reduce: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """`x @ weight.T + bias` on every rank, where each has only some columns of x.

    Args:
        x: `[tokens, in / size]`: this rank's columns, as `column_parallel` returns them.
        weight, bias: the whole layer's, `[out, in]` and `[out]` or None; `size` divides in. Only
            this rank's part of the weight may be used.
        all_reduce: takes a tensor and returns the sum of all ranks' tensors. It is called once, by
            every rank: it is what costs time.

    Returns:
        `[tokens, out]`, the same on every rank.
    """
    own = part(weight.shape[1], rank, size)
    out = all_reduce(linear(x, weight[:, own]))
    return out if bias is None else out + bias
