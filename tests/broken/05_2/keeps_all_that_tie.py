"""Keeps everything as likely as the last token kept."""

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column

EXPECT = "Everything that ties with the last token was kept"


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits, p):
        p = _column("top_p", p, logits)
        ordered = logits.sort(dim=-1, descending=True, stable=True).values
        probabilities = ordered.softmax(dim=-1, dtype=torch.float32)
        before = probabilities.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        drop = (before >= p) & (p < 1)
        drop[..., 0] = False
        threshold = ordered.masked_fill(drop, float("inf")).amin(dim=-1, keepdim=True)
        return logits.masked_fill(logits < threshold, float("-inf"))
