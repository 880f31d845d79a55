"""Applies the decision of the sorted row to the tokens in their own order."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "Carry it back"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered = logits.sort(dim=-1, descending=True, stable=True).values
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        return logits.masked_fill(drop, float("-inf"))
