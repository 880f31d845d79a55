"""Exercise 27.2: Which back end computes an operator.

The heart of the registry. A back end chosen by name must compute the result: if it raises
Unsupported, raise a ValueError that names operator, back end and reason. Under AUTO try the back
ends of `order`, best first: announce one that raises Unsupported, and try the next. Skip one that
raises Declined without a warning. What the last one raises, and any other error, goes to the
caller.

You have
- `resolve(operator, backend)`: returns the function of a back end; raises if there is none
- `order(operator, device)`: returns the names that `auto` tries there, a list, best first; the
  last one is always able
- `Unsupported`, `Declined`: exceptions that such a function raises for arguments that it cannot
  compute; `Declined` is an `Unsupported` that needs no warning
- `announce(operator, backend, reason)`: warns, once for each reason, a str
- `AUTO`: the name "auto"
- `arguments`: a tuple, what the function is called with

In a terminal: yaie check 27.2, yaie hint 27.2, yaie reset 27.2.
"""

from __future__ import annotations

from typing import Any

from yaie.ops.registry import AUTO, Declined, Unsupported, announce, order, resolve


def compute(operator: str, backend: str, device: str, *arguments: Any) -> Any:
    """Compute an operator with a back end, or with the first that can if it is "auto".

    Raises ValueError if `backend` cannot, or is unknown. A back end that `auto` passes over is
    announced by a FallbackWarning.
    """
    raise NotImplementedError("Exercise 27.2: Which back end computes an operator")
