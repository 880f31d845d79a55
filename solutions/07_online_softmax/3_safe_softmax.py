"""Solution of exercise 07.3: Softmax of rows with nothing to see.

The softmax of whole rows, and its log-sum-exp, which must survive anything that a mask or a model
puts into a row: scores too large for an exponential, some keys hidden, all keys hidden, no keys.
`attention` of notebook 01 runs on it.

Generated from safe_softmax in yaie/ops/reference/online_softmax.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.ops.reference.online_softmax import State


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
