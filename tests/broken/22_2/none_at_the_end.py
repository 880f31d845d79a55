"""If nobody can, None is returned."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "a result of None would be a lie"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    for name in order(operator, device):
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return None
