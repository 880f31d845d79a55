"""What a call of a learner's function costs."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from yaie.ops.interpreter import choose_interpreter


def cost_of(call: Callable[[], Any]) -> tuple[Any, list[int], int]:
    """What `call()` returns, the shape of the largest tensor that it makes, and its FLOPs.

    FLOPs are the multiplications and additions of matrix products.
    """
    choose_interpreter()  # the next line imports Triton
    from torch.utils.flop_counter import flop_registry

    largest, flops = [0], 0

    class Watch(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # to skip it means to import it first, which takes a second

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest, flops
            got = function(*args, **(kwargs or {}))
            for x in got if isinstance(got, (tuple, list)) else [got]:
                if isinstance(x, torch.Tensor) and x.numel() > math.prod(largest):
                    largest = list(x.shape)
            if count := flop_registry.get(function._overloadpacket):
                flops += count(*args, **(kwargs or {}), out_val=got)
            return got

    with Watch():
        result = call()
    return result, largest, flops
