"""Solution of exercise 05.2: Keep the nucleus and the token that completes it.

Sort each row, likeliest first, and add up the probabilities. A token is dropped if the tokens
before it have reached `p` already; the first token always stays, and a `p` of 1 keeps every
token. Decide in sorted order, carry the decision back to the tokens' own places, and set the
dropped logits to -inf.

Generated from SamplingKernel.top_p in yaie/engine/sampling.py.
Edit it there, and run `python -m yaie.course build`.
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
        p = _column("top_p", p, logits)
        if (p >= 1).all():
            return logits
        # Stable, so that of equals the first stay, whatever else is in the batch.
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        reached = ordered.softmax(dim=-1, dtype=torch.float32).cumsum(dim=-1)
        drop = torch.zeros_like(order, dtype=torch.bool)
        drop[..., 1:] = (reached[..., :-1] >= p) & (p < 1)
        return logits.masked_fill(drop.scatter(-1, order, drop), float("-inf"))
