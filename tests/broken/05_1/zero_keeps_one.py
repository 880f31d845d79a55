"""Lifts a k of 0 to 1."""

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "Here it became 1"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits).long()
        k = k.clamp(1, vocabulary)
        ordered = logits.sort(dim=-1, descending=True).values
        threshold = ordered.gather(-1, k - 1)
        return logits.masked_fill(logits < threshold, float("-inf"))
