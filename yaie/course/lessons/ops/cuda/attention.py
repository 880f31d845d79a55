"""Attention of one sequence by CUDA C++ kernels; operands as `yaie.ops.reference.attention`'s."""

from typing import Any

from yaie.ops.cuda.flash import Sequences, State, best
from yaie.ops.cuda.hopper import pingpong


def attention(*operands: Any) -> State:
    """By the best rung that takes these tensors."""
    return best(*operands, Sequences())


def attention_hopper(*operands: Any) -> State:
    """By the kernels for Hopper: the back end `cuda_hopper`."""
    return pingpong(*operands, Sequences())
