"""Does not look at the range of p."""

import torch

from yaie.engine import sampling as reference

EXPECT = "A wrong parameter must not become a wrong text"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = torch.as_tensor(p).reshape(-1, 1)
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
