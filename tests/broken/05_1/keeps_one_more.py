"""Takes the entry at index k for the k-th largest."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "the k-th largest is at index k - 1"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits).long()
        k = torch.where((k == 0) | (k > vocabulary), vocabulary, k)
        ordered = logits.sort(dim=-1, descending=True).values
        threshold = ordered.gather(-1, k.clamp(max=vocabulary - 1))
        return logits.masked_fill(logits < threshold, float("-inf"))
