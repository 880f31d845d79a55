"""The order of a GPU is taken on every device."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "cuda stands in no list of this device"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    *better, last = order(operator, "cuda")
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
