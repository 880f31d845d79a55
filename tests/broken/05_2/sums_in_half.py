"""Sums in the dtype of the logits."""

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "its running sum in float32"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        drop = drop.scatter(-1, order, drop)
        return logits.masked_fill(drop, float("-inf"))
