"""Exercise 05.3: From logits to tokens, a generator per request.

Put it together, in the order temperature, top-k, top-p, min-p, draw. Rows with temperature 0 take
the argmax; all others, however small their temperature, are drawn.

You have
- `check_logits(logits)`: ValueError if a row has a NaN or nothing that is finite
- `_column(name, value, logits)`: returns float32 `[batch, 1]`; `name` is `"temperature"`,
  `"top_p"`, `"top_k"` or `"min_p"`; ValueError if a value is out of range
- `self.top_k(logits, k)`, `self.top_p(logits, p)`, `self.min_p(logits, p)`: the filters; each
  returns logits, -inf where dropped, and takes a column
- `self.draw(probabilities, generators)`: returns int64 `[rows]`, a token for each row, drawn with
  that row's generator; at least one row is needed; `generators` is a list here, with a generator
  or None for each row
- `logits.argmax(dim=-1)`: int64 `[batch]`
- `(...).nonzero()`: the indices where a mask is True, `[number, 1]` for a mask of one axis
- `generators`: None, or a list with a generator or None for each row

In a terminal: yaie check 05.3, yaie hint 05.3, yaie reset 05.3.
What this file does not define is inherited from yaie/engine/sampling.py.
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
        raise NotImplementedError("Exercise 05.3: From logits to tokens, a generator per request")
