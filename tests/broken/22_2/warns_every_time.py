"""The warning comes with every call."""

from __future__ import annotations

import warnings

from yaie.ops.registry import AUTO, Unsupported, order, resolve

EXPECT = "once is enough"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            warnings.warn(f"{operator}: {name} passed over: {reason}", stacklevel=2)
    return resolve(operator, last)(*arguments)
