"""A back end that cannot is passed over without a word."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, order, resolve

EXPECT = "A silent fallback looks like a slow kernel"


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
        except Unsupported:
            continue
    return resolve(operator, last)(*arguments)
