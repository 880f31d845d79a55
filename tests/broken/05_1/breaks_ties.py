"""Keeps exactly k tokens, also where more tie."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "tie for the second place"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits).long()
        k = torch.where((k == 0) | (k > vocabulary), vocabulary, k)
        order = logits.argsort(dim=-1, descending=True, stable=True)
        drop = torch.arange(vocabulary).expand_as(logits) >= k
        return logits.masked_fill(drop.scatter(-1, order, drop), float("-inf"))
