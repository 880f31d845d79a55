"""Asks topk for more tokens than there are."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "A k above the vocabulary keeps all"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        k = _column("top_k", k, logits).long()
        k = torch.where(k == 0, logits.shape[-1], k)
        largest = logits.topk(int(k.max()), dim=-1).values
        return logits.masked_fill(logits < largest.gather(-1, k - 1), float("-inf"))
