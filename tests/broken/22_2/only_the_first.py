"""auto asks the first, and nobody else."""

from __future__ import annotations

from yaie.ops.registry import AUTO, Unsupported, order, resolve

EXPECT = "it means: ask the next"


def compute(operator, backend, device, *arguments):
    if backend != AUTO:
        try:
            return resolve(operator, backend)(*arguments)
        except Unsupported as reason:
            raise ValueError(f"{operator}: backend {backend!r} cannot: {reason}") from reason
    return resolve(operator, order(operator, device)[0])(*arguments)
