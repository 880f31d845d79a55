"""Solution of exercise 07.1: The update step of the online softmax.

A tile of scores arrives, with the values that belong to them. Bring `self.maximum`, `self.total`
and `self.accumulator` to where they would be if this tile and all earlier ones had come together.
The sums so far are relative to the old maximum. There may be many rows, each with its own
maximum, and a row may have nothing but -inf so far.

Generated from OnlineSoftmax.update in yaie/course/lessons/online_softmax.py.
Edit it there, and run `python -m yaie.course build`.
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
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        rescale = (self.maximum - finite(maximum)).exp()
        weights = (scores - finite(maximum).unsqueeze(-1)).exp()
        self.total = self.total * rescale + weights.sum(dim=-1)
        self.accumulator = self.accumulator * rescale.unsqueeze(-1) + weights @ values
        self.maximum = maximum
