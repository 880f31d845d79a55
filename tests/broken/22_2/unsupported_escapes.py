"""A named back end's Unsupported goes to the caller."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "Unsupported went on to the caller as it was"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        return resolve(operator, backend)(*arguments)
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
