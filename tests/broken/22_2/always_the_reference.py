"""auto is the reference."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, resolve

EXPECT = "The reference computed it, though another stands before it"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    return resolve(operator, "reference")(*arguments)
