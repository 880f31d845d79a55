"""Operators of the engine: one module a family, each with its checks and its dispatch.

`operators.<name>` is the bare operator, for callers who have checked its arguments themselves.
"""

from __future__ import annotations

import torch

from yaie.ops.interpreter import choose_interpreter

choose_interpreter()  # before anything imports Triton

from yaie.ops import (  # noqa: E402  # each registers its own
    attention,
    attention_gradient,
    elementwise,
    kv,
    matrix,
    metadata,
    norm,
    radix,
    rotary,
    sampling,
)

__all__ = [
    "attention",
    "attention_gradient",
    "elementwise",
    "kv",
    "matrix",
    "metadata",
    "norm",
    "operators",
    "radix",
    "rotary",
    "sampling",
]

operators = torch.ops.yaie
