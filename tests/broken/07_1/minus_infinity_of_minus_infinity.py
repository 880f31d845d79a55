"""Subtracts a maximum of -inf from scores of -inf."""

import torch

from yaie.ops.reference import online_softmax as reference

EXPECT = "-inf - -inf is NaN"


class OnlineSoftmax(reference.OnlineSoftmax):
    def update(self, scores, values):
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        rescale = (self.maximum - maximum).exp()
        weights = (scores - maximum.unsqueeze(-1)).exp()
        self.total = self.total * rescale + weights.sum(dim=-1)
        self.accumulator = self.accumulator * rescale.unsqueeze(-1) + weights @ values
        self.maximum = maximum
