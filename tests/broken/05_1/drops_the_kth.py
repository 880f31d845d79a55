"""Compares with "or equal": the k-th largest goes as well."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "The k-th largest itself was dropped"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits).long()
        k = torch.where((k == 0) | (k > vocabulary), vocabulary, k)
        ordered = logits.sort(dim=-1, descending=True).values
        threshold = ordered.gather(-1, k - 1)
        return logits.masked_fill(logits <= threshold, float("-inf"))
