"""Compares with p as it came: a tensor of one a row does not broadcast."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "compares with `[batch, vocabulary]`"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        _column("top_p", p, logits)
        p = p if isinstance(p, float) else float(p)
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
