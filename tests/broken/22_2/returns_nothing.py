"""What the back end returns is dropped."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, announce, order, resolve

EXPECT = "what the back end returns is the result"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        resolve(operator, backend)(*arguments)
        return
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
