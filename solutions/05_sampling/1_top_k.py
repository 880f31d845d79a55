"""Solution of exercise 05.1: Keep the k most likely tokens.

Set all but the `k` largest logits of each row to -inf. Every row has its own `k`, which may be a
number or a tensor. Kept logits keep their place and their value.

Generated from SamplingKernel.top_k in yaie/engine/sampling.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column


class SamplingKernel(reference.SamplingKernel):
    def top_k(self, logits: torch.Tensor, k: int | torch.Tensor) -> torch.Tensor:
        """Keep the `k` most likely tokens of each row; 0, -1 or more than there are keeps all.

        Tokens that tie with the last one kept are kept too.

        Args:
            logits: `[batch, vocabulary]`; not changed.
            k: one number for all rows, or a tensor with one for each, `[batch]` or `[batch, 1]`.

        Returns:
            Logits of the same shape and dtype: as they were where kept, -inf where dropped.

        Raises:
            ValueError: `k` is below -1, or neither one nor one for each row.
        """
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits)
        limited = (k > 0) & (k < vocabulary)
        if not limited.any():
            return logits
        k = torch.where(limited, k, 1).long()
        largest = logits.topk(int(k.max()), dim=-1).values
        threshold = largest.gather(-1, k - 1).masked_fill(~limited, float("-inf"))
        return logits.masked_fill(logits < threshold, float("-inf"))
