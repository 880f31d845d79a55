"""Any error at all means that the next may try."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "Only Unsupported means that another back end may do it"


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
        except Exception as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
