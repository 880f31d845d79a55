"""Rescales by exp(new - old), which makes the old sums larger."""

import torch

from yaie.ops.reference import online_softmax as reference
from yaie.ops.reference.online_softmax import finite

EXPECT = "rescaled by the wrong sign"


class OnlineSoftmax(reference.OnlineSoftmax):
    def update(self, scores, values):
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        rescale = (finite(maximum) - self.maximum).exp()
        weights = (scores - finite(maximum).unsqueeze(-1)).exp()
        self.total = self.total * rescale + weights.sum(dim=-1)
        self.accumulator = self.accumulator * rescale.unsqueeze(-1) + weights @ values
        self.maximum = maximum
