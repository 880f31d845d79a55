"""Attention of one sequence by CUDA C++ kernels, also by those for Hopper."""

from typing import Any

from torch import Tensor

from yaie.ops.cuda.flash import Rung, Sequences, State, best
from yaie.ops.cuda.hopper import pingpong


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, rung: Rung = best
) -> State:
    """See `yaie.ops.reference.attention.attention`."""
    return rung(q, k, v, causal, scale, Sequences())


def attention_hopper(*operands: Any) -> State:
    """`attention` as the back end `cuda_hopper` computes it."""
    return attention(*operands, rung=pingpong)
