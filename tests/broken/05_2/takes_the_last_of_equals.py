"""Sorts upwards and flips, so that of equals the last come first."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "of equals the first come first"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered, order = (x.flip(-1) for x in logits.sort(dim=-1, stable=True))
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
