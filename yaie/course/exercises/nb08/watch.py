"""How large the tensors were that the learner's code made, and how many operations it took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def watched(call: Callable[[], Any]) -> tuple[Any, list[int], int]:
    """What `call()` returns, the shape of the largest tensor made in it, and its operations.

    Operations are those of products of matrices.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten
    from torch.utils.flop_counter import FlopCounterMode

    largest: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for x in tree_flatten(result)[0]:
                if isinstance(x, torch.Tensor) and x.numel() > size(largest):
                    largest = list(x.shape)
            return result

    with FlopCounterMode(display=False) as counter, Sizes():
        got = call()
    return got, largest, counter.get_total_flops()


def size(shape: list[int]) -> int:
    """How many elements a tensor of this shape has; none if there is no shape."""
    count = 1 if shape else 0
    for length in shape:
        count *= length
    return count
