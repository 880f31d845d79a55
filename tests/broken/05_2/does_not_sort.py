"""Sums the tokens in the order of the vocabulary."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "in the order of the vocabulary"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        probabilities = logits.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1) - probabilities
        return logits.masked_fill((before >= p) & (p < 1), float("-inf"))
