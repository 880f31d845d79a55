"""What the exercises of notebook 07 share: softmax and attention of whole rows, in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from yaie.course.core.observe import Observer, short

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


def see_unchanged(see: Observer, after: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    """Note whether a call left its arguments as they were."""
    for name, x in after.items():
        see.equal(f"{name} after the call", x, before[name], "Leave the arguments as they are.")


def two_tensors(see: Observer, what: str, got: Any, words: str) -> tuple[Any, Any]:
    """The two parts of a result; where it has not two, the case ends."""
    right = isinstance(got, tuple) and len(got) == 2
    see.true(what, right, f"returned {short(got)}, expected two tensors: {words}")
    if not right:
        see.stop()
    return got
