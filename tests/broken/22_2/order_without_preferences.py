"""ORDER is read, of which preferences are no part."""

from __future__ import annotations

from yaie.ops.registry import AUTO, ORDER, Unsupported, announce, backends, resolve

EXPECT = "ORDER alone does not know of it"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    functions = backends(operator)
    *better, last = [name for name in ORDER[device] if name in functions]
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
