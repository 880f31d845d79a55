"""Exercise 05.1: Keep the k most likely tokens.

Set all but the `k` largest logits of each row to -inf. Every row has its own `k`, which may be a
number or a tensor. Kept logits keep their place and their value.

You have
- `logits`: `[batch, vocabulary]`, of any float dtype; return the same dtype
- `_column("top_k", k, logits)`: returns float32 `[batch, 1]`, k of each row, 0 where it is -1;
  ValueError if a value is out of range
- `logits.sort(dim=-1, descending=True)`: returns `values` and `indices`
- `x.gather(-1, index)`: of each row the elements at `index`, int64 `[batch, ...]`
- `logits.masked_fill(mask, value)`: a copy with `value` where the mask is True

In a terminal: yaie check 05.1, yaie hint 05.1, yaie reset 05.1.
What this file does not define is inherited from yaie/engine/sampling.py.
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
        raise NotImplementedError("Exercise 05.1: Keep the k most likely tokens")
