"""Operators of the engine: one module per family, each with its checks and its dispatch.

`operators.<name>` is the bare operator, for callers who have checked its arguments themselves.
"""

from __future__ import annotations

import torch

from yaie.ops.interpreter import choose_interpreter

choose_interpreter()  # before anything imports Triton

from yaie.ops import (  # noqa: E402  # each registers its own
    attention,
    elementwise,
    kv,
    norm,
    rotary,
    sampling,
)

__all__ = [
    "attention",
    "elementwise",
    "kv",
    "norm",
    "operators",
    "rotary",
    "sampling",
]

operators = torch.ops.yaie
