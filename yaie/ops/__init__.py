"""Operators of the engine: one module per family, each with its checks and its dispatch.

`operators.<name>` is the bare operator, for callers that check its arguments themselves.
"""

import torch

from yaie.ops.interpreter import choose_interpreter

choose_interpreter()  # before anything imports Triton

# Each registers its own operators.
from yaie.ops import attention, elementwise, kv, norm, rotary, sampling  # noqa: E402

__all__ = ["attention", "elementwise", "kv", "norm", "operators", "rotary", "sampling"]

operators = torch.ops.yaie
