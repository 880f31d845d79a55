"""Shifts the sum by two: one token too many."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "One token too many"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(2, dims=-1)
        before[..., :2] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
