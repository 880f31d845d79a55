"""Exercise 07.3: Softmax of rows with nothing to see.

The softmax of whole rows, and its log-sum-exp, which must survive anything that a mask or a model
puts into a row: scores too large for an exponential, some keys hidden, all keys hidden, no keys.
`attention` of notebook 01 runs on it.

You have
- `scores`: `[..., keys]`, of any float dtype; there may be no key. Return a tuple of weights and
  log-sum-exp in the same dtype, and do not compute in a narrower one: float64 stays float64
- `scores.amax(dim=-1, keepdim=True)`: the largest of each row, `[..., 1]`; an error if there are
  no keys
- `x.clamp(min=number)`: a copy in which nothing is less than `number`
- `torch.finfo(scores.dtype).min`: the least finite number of a dtype
- `scores.new_full(shape, value)`: a new tensor of the same dtype and device

In a terminal: yaie check 07.3, yaie hint 07.3, yaie reset 07.3.
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
    raise NotImplementedError("Exercise 07.3: Softmax of rows with nothing to see")
