"""A back end that is named and cannot is replaced by another."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "was demanded, cannot, and the reference computed it silently"


def compute(operator, backend, device, *arguments):
    names = [backend] if backend != AUTO else []
    *better, last = [*names, *order(operator, device)]
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
