"""Exercise 24.2: Who computes an operator.

The heart of the registry. `resolve(operator, backend)` gives the function of a back end,
`order(operator, device)` the names that `auto` tries there, best first; a function raises
`Unsupported` for arguments that it cannot compute, and `announce(operator, backend, reason)`
warns, once for each reason. Any backend but AUTO is a demand.

In a terminal: yaie check 24.2, yaie hint 24.2, yaie reset 24.2.
"""

from __future__ import annotations

from typing import Any

from yaie.ops.registry import AUTO, Declined, Unsupported, announce, order, resolve


def compute(operator: str, backend: str, device: str, *arguments: Any) -> Any:
    """Compute an operator with a back end, or with the first that can if it is "auto".

    Raises ValueError if `backend` cannot, or is unknown. A back end that `auto` passes over is
    announced by a FallbackWarning.
    """
    raise NotImplementedError("Exercise 24.2: Who computes an operator")
