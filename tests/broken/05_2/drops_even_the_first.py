"""Looks at the sum with the token, and keeps nothing if the first has enough."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "The token that crosses the threshold was dropped"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1)
        drop = (before > p) & (p < 1)
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
