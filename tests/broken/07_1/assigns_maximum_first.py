"""Assigns the new maximum before it takes the difference to the old one."""

import torch

from yaie.ops.reference import online_softmax as reference
from yaie.ops.reference.online_softmax import finite

EXPECT = "The old sum was not rescaled"


class OnlineSoftmax(reference.OnlineSoftmax):
    def update(self, scores, values):
        self.maximum = torch.maximum(self.maximum, scores.amax(dim=-1))
        rescale = (self.maximum - self.maximum).nan_to_num(0.0).exp()
        weights = (scores - finite(self.maximum).unsqueeze(-1)).exp()
        self.total = self.total * rescale + weights.sum(dim=-1)
        self.accumulator = self.accumulator * rescale.unsqueeze(-1) + weights @ values
