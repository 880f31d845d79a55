"""Checks of operator arguments. Each raises an error that names the argument."""

from collections.abc import Sequence

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn  # of a cache of 8-bit floats
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_tensor(
    name: str,
    tensor: Tensor,
    shape: Sequence[int | str],
    dtypes: Sequence[torch.dtype],
    like: Tensor | None = None,
    contiguous: bool = False,
) -> None:
    """Check a tensor's rank, sizes, dtype, device and layout.

    Args:
        name: of the argument, for the message.
        shape: a number for each size that is fixed, a name for each that is free.
        dtypes: those allowed.
        like: a tensor whose device must be the same.
        contiguous: whether its elements must be adjacent in memory, in order.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    sizes = tensor.shape
    fits = len(sizes) == len(shape)
    for got, want in zip(sizes, shape, strict=False):  # `all` of a generator takes twice as long
        if not isinstance(want, str) and got != want:
            fits = False
    if not fits:
        wanted = "[" + ", ".join(str(size) for size in shape) + "]"
        raise ValueError(f"{name} must have shape {wanted}, got {list(sizes)}")
    if tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {names}, got {str(tensor.dtype).removeprefix('torch.')}")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device}, got {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {list(tensor.stride())}")


def check_range(name: str, indices: Tensor, size: int) -> None:
    """Check that indices are from 0 to `size` - 1, where they are known without waiting."""
    if not known(indices) or indices.numel() == 0:
        return
    low, high = (bound.item() for bound in indices.aminmax())
    if low < 0 or high >= size:
        raise ValueError(f"{name} must be from 0 to {size - 1}, got {low if low < 0 else high}")


def check_distinct(name: str, indices: Tensor, what: str) -> None:
    """Check that no index stands twice: of two writes to one place, either might stay.

    Where `check_range` checks; `what` is what the message calls an index.
    """
    if len(indices) > 1 and known(indices) and len(indices.unique()) < len(indices):
        raise ValueError(f"{name} must not have a {what} twice, got {indices.tolist()}")


def known(indices: Tensor) -> bool:
    """Whether values can be looked at: a GPU would stall, and torch.compile has none to show."""
    return indices.device.type == "cpu" and not torch.compiler.is_compiling()


def check_heads(num_heads: int, num_kv_heads: int) -> None:
    """Check that the query heads divide evenly among the KV heads."""
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(
            f"q has {num_heads} heads, not a multiple of the {num_kv_heads} of k and v"
        )
