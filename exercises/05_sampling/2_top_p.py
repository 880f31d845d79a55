"""Exercise 05.2: Keep the nucleus and the token that completes it.

Sort each row, likeliest first, and add up the probabilities. A token is dropped if the tokens
before it have reached `p` already; the first token always stays, and a `p` of 1 keeps every
token. Decide in sorted order, carry the decision back to the tokens' own places, and set the
dropped logits to -inf.

You have
- `logits`: `[batch, vocabulary]`, of any float dtype; return the same dtype
- `_column("top_p", p, logits)`: returns float32 `[batch, 1]`, p of each row; ValueError if a
  value is out of range
- `logits.sort(dim=-1, descending=True, stable=True)`: returns `values` and `indices`
- `x.softmax(dim=-1, dtype=torch.float32)`, `x.cumsum(dim=-1)`: along a row: probabilities;
  running sums, each with its own element
- `drop.scatter(-1, order, source)`: a copy of `drop` in which `source[b, i]` stands at place
  `order[b, i]` of row b
- `logits.masked_fill(mask, value)`: a copy with `value` where the mask is True

In a terminal: yaie check 05.2, yaie hint 05.2, yaie reset 05.2.
What this file does not define is inherited from yaie/engine/sampling.py.
"""

from __future__ import annotations

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column


class SamplingKernel(reference.SamplingKernel):
    def top_p(self, logits: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        """Keep the smallest set of most likely tokens whose probabilities sum to at least `p`.

        The token that crosses the threshold is kept: of (0.5, 0.4, 0.1), 0.8 keeps two. So at
        least one token always stays. Of tokens with equal logits the first come first. A `p` of 1
        keeps all. Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.

        Args:
            logits: `[batch, vocabulary]`, in any float dtype; summed in float32, not changed.
            p: one number for all rows, or a tensor with one for each, `[batch]` or `[batch, 1]`.

        Returns:
            Logits of the same shape and dtype: as they were where kept, -inf where dropped.

        Raises:
            ValueError: `p` is not from 0 to 1, or neither one nor one for each row.
        """
        raise NotImplementedError("Exercise 05.2: Keep the nucleus and the token that completes it")
