"""Keeps the sums of the last tile only."""

import torch

from yaie.ops.reference import online_softmax as reference
from yaie.ops.reference.online_softmax import finite

EXPECT = "What was summed before is lost"


class OnlineSoftmax(reference.OnlineSoftmax):
    def update(self, scores, values):
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        weights = (scores - finite(maximum).unsqueeze(-1)).exp()
        self.total = weights.sum(dim=-1)
        self.accumulator = weights @ values
        self.maximum = maximum
