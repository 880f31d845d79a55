"""Exercise 07.1: The update step of the online softmax.

A tile of scores arrives, with the values that belong to them. Bring `self.maximum`, `self.total`
and `self.accumulator` to where they would be if this tile and all earlier ones had come together.
The sums so far are relative to the old maximum. There may be many rows, each with its own
maximum, and a row may have nothing but -inf so far.

You have
- `self.maximum`, `self.total`: `[..., rows]`: the largest score so far, -inf at first; the sum of
  exp(score - maximum)
- `self.accumulator`: `[..., rows, head_dim]`: the sum of exp(score - maximum) × value
- `scores`, `values`: `[..., rows, keys]` with at least one key; `[..., keys, head_dim]`
- `finite(x)`: returns a copy with 0 in place of -inf
- `scores.amax(dim=-1)`, `torch.maximum(a, b)`: the largest of each row; the larger of each pair
- `x.unsqueeze(-1)`: an axis of length 1 more, at the end

In a terminal: yaie check 07.1, yaie hint 07.1, yaie reset 07.1.
What this file does not define is inherited from yaie/course/lessons/online_softmax.py.
"""

from __future__ import annotations

import torch

from yaie.course.lessons import online_softmax as reference
from yaie.course.lessons.online_softmax import finite


class OnlineSoftmax(reference.OnlineSoftmax):
    def update(self, scores: torch.Tensor, values: torch.Tensor) -> None:
        """Take in a tile of scores and the values that belong to them.

        Afterwards `maximum`, `total` and `accumulator` are what they would be if this tile and
        all before had come as one. Nothing is divided here: `finish` does that, once. The
        arguments are left as they are.

        Args:
            scores: `[..., rows, keys]`, at least one key; -inf where a key is hidden. A row may
                have no other score, in this tile or so far: its maximum stays as it is, and
                nothing becomes NaN.
            values: `[..., keys, head_dim]`.
        """
        raise NotImplementedError("Exercise 07.1: The update step of the online softmax")
