"""The name of the back end is not looked at."""

from __future__ import annotations

from yaie.ops.registry import Unsupported, announce, order, resolve

EXPECT = 'A name other than "auto" is a demand'


def compute(operator, backend, device, *arguments):
    *better, last = order(operator, device)
    for name in better:
        try:
            return resolve(operator, name)(*arguments)
        except Unsupported as reason:
            announce(operator, name, str(reason))
    return resolve(operator, last)(*arguments)
