"""Attention of one sequence, in plain PyTorch."""

from typing import Any

from yaie.ops.reference.attention import attention as as_it_lies
from yaie.ops.reference.online_softmax import State


def attention(*operands: Any) -> State:
    """See `yaie.ops.reference.attention`; results contiguous, as those of the kernels are."""
    out, lse = as_it_lies(*operands)
    return out.contiguous(), lse.contiguous()
