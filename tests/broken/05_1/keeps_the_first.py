"""Drops places of the sorted row, and takes them for tokens."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "their places in sorted order were taken for token ids"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits).long()
        k = torch.where((k == 0) | (k > vocabulary), vocabulary, k)
        return logits.masked_fill(torch.arange(vocabulary) >= k, float("-inf"))
