"""Compares a number only: a tensor does not broadcast."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "`_column(name, value, logits)` makes a column"


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits, k):
        vocabulary = logits.shape[-1]
        column = _column("top_k", k, logits).long()
        k = column if isinstance(k, int) else torch.as_tensor(int(k))
        k = torch.where((k == 0) | (k > vocabulary), vocabulary, k)
        ordered = logits.sort(dim=-1, descending=True).values
        return logits.masked_fill(logits < ordered.gather(-1, k - 1), float("-inf"))
