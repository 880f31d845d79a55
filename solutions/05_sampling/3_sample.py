"""Solution of exercise 05.3: From logits to tokens, a generator per request.

Put it together, in the order temperature, top-k, top-p, min-p, draw. Rows with temperature 0 take
the argmax; all others, however small their temperature, are drawn.

Generated from SamplingKernel.sample in yaie/engine/sampling.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yaie.engine import sampling as reference
from yaie.engine.sampling import _column, check_logits


class SamplingKernel(reference.SamplingKernel):
    def sample(
        self,
        logits: torch.Tensor,
        temperature: float | Sequence[float] = 1.0,
        top_p: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        min_p: float | Sequence[float] = 0.0,
        generators: Sequence[torch.Generator | None] | None = None,
    ) -> torch.Tensor:
        """Choose a token for each row of `logits`.

        The order is: temperature, top-k, top-p, min-p, draw. What a row draws depends on its own
        logits, parameters and generator only, not on the rows beside it. However small a
        temperature above 0 is, nothing overflows.

        Args:
            logits: `[batch, vocabulary]`, in any float dtype; computed in float32, not changed.
            temperature, top_p, top_k, min_p: as in `SamplingParams`, each one number for all rows
                or a sequence with one for each. Rows with temperature 0 take their most likely
                token, the first of equals.
            generators: the random stream of each row; torch's global one where None.

        Returns:
            Token ids, int64 `[batch]`.

        Raises:
            ValueError: a row has a NaN, +inf, or only -inf; there is not one generator per row; a
                parameter is out of range (in greedy rows only the temperature must be checked).
        """
        check_logits(logits)
        generators = [None] * len(logits) if generators is None else generators
        if len(generators) != len(logits):
            raise ValueError(
                f"generators must be {len(logits)}, one per row, got {len(generators)}"
            )
        temperature = _column("temperature", temperature, logits)
        tokens = logits.argmax(dim=-1)
        drawn = (temperature.squeeze(1) > 0).nonzero().squeeze(1)
        if len(drawn) == 0:
            return tokens
        top_p, top_k, min_p = (
            _column(name, value, logits)[drawn]
            for name, value in (("top_p", top_p), ("top_k", top_k), ("min_p", min_p))
        )
        # Relative to the maximum, so that a tiny temperature cannot overflow.
        scaled = logits[drawn].float()
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature[drawn]
        scaled = self.min_p(self.top_p(self.top_k(scaled, top_k), top_p), min_p)
        tokens[drawn] = self.draw(scaled.softmax(dim=-1), [generators[i] for i in drawn.tolist()])
        return tokens
