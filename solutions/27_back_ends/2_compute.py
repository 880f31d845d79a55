"""Solution of exercise 27.2: Which back end computes an operator.

The heart of the registry. A back end chosen by name must compute the result: if it raises
Unsupported, raise a ValueError that names operator, back end and reason. Under AUTO try the back
ends of `order`, best first: announce one that raises Unsupported, and try the next. Skip one that
raises Declined without a warning. What the last one raises, and any other error, goes to the
caller.

Generated from compute in yaie/ops/registry.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from typing import Any

from yaie.ops.registry import AUTO, Declined, Unsupported, announce, order, resolve


def compute(operator: str, backend: str, device: str, *arguments: Any) -> Any:
    """Compute an operator with a back end, or with the first that can if it is "auto".

    Raises ValueError if `backend` cannot, or is unknown. A back end that `auto` passes over is
    announced by a FallbackWarning.
    """
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Declined:
            continue
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
