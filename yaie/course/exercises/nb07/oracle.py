"""What the exercises of notebook 07 share: softmax and attention of whole rows, in float64."""

import math

import torch
from torch import Tensor

INF = math.inf


def sums(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, sum and weighted sum of rows that are there as a whole.

    `scores` is `[..., rows, keys]`, `values` `[..., keys, head_dim]`.
    """
    scores, values = scores.double(), values.double()
    maximum = scores.amax(dim=-1)
    weights = (scores - maximum.clamp(min=-1e300).unsqueeze(-1)).exp()
    return maximum, weights.sum(dim=-1), (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(dim=-2)


def attention(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of scores `[..., keys]` and values `[..., keys, head_dim]`."""
    scores, values = scores.double(), values.double()
    if scores.shape[-1] == 0:
        out = torch.zeros(*scores.shape[:-1], values.shape[-1], dtype=torch.float64)
        return out, torch.full(scores.shape[:-1], -INF, dtype=torch.float64)
    out = (scores.softmax(dim=-1).unsqueeze(-1) * values).sum(dim=-2)
    return out.nan_to_num(0.0), scores.logsumexp(dim=-1)
