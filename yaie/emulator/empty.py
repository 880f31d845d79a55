"""Memory that holds nothing yet: tensors of `torch.empty` that a kernel reads before it writes.

A tensor does not know whether its memory was written. So it is filled with a pattern that no
program computes, and what still shows the pattern when a checked call begins counts as unwritten.
So what was written is never accused, by whatever it was: torch, NumPy, a kernel, other C++.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PATTERN = b"\xa5\xff"  # NaN as a float of 16, 32 or 64 bits; as in runtime/host_checks.cpp
_used = False  # since when checked calls look for it


def unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Mark all memory of a CPU tensor as unwritten, and return the tensor.

    Raises TypeError if it is not on the CPU.
    """
    global _used
    if tensor.device.type != "cpu":
        raise TypeError(f"unwritten(): the tensor must be on the CPU, got {tensor.device}")
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    ctypes.memmove(storage.data_ptr(), _PATTERN * ((size + 1) // 2), size)
    _used = True
    return tensor


def looks_for_unwritten() -> bool:
    """Whether any tensor was marked in this process."""
    return _used


@contextmanager
def watch_empty() -> Iterator[None]:
    """Mark every CPU tensor that `torch.empty` and its kin make in this block.

    A checked kernel that reads one where nothing was written is told, also after the block.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    making = (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, call: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = call(*args, **(kwargs or {}))
            plain = type(made) is torch.Tensor and made.device.type == "cpu"
            return unwritten(made) if plain and call.overloadpacket in making else made

    with Watch():
        yield
