"""Softmax that does not overflow.

A row of scores stands for the weights exp(score) / sum of exp(scores). Taking the maximum off all
scores first changes no weight and keeps every exponential at 1 or below. A row in which every
score is -inf (nothing to attend to) has weights of 0 and a log-sum-exp of -inf, never NaN.
"""

from __future__ import annotations

import torch

State = tuple[torch.Tensor, torch.Tensor]  # output, log-sum-exp


def safe_softmax(scores: torch.Tensor) -> State:
    """Softmax over the last dimension, and its natural log-sum-exp.

    Args:
        scores: `[..., keys]`, of any floating-point dtype; -inf for a key that is hidden. There
            may be no keys.

    Returns:
        Weights `[..., keys]` and log-sum-exp `[...]`, both in the dtype of scores. A row of
        nothing but -inf has weights of 0 and a log-sum-exp of -inf. The argument is left as it is.
    """
    if scores.shape[-1] == 0:
        return scores.clone(), scores.new_full(scores.shape[:-1], float("-inf"))
    # A maximum of -inf is raised to the least float, because -inf - -inf is NaN.
    maximum = scores.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = (scores - maximum).exp_()
    total = weights.sum(dim=-1, keepdim=True)  # at least 1, or 0 where all is masked
    return weights / total.clamp(min=1.0), (maximum + total.log()).squeeze(-1)
