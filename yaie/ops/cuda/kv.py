"""Writing the paged cache by CUDA C++ kernels."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from yaie.ops.cuda.launching import call, memory, suffix, token_rows


def reshape_and_cache(
    keys: Tensor,
    values: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    slot_mapping: Tensor,
    file: str | Path = "kv/reshape_and_cache.cu",
    name: str = "reshape_and_cache",
) -> None:
    """Write new keys and values into their slots; tokens may lie apart, as in a fused product.
    `name` is a launcher of `file`."""
    keys, values = token_rows(keys), token_rows(values)
    tokens, heads, head_dim = keys.shape
    strides = keys.stride(0), values.stride(0)
    if key_pool.element_size() == 1:
        file, name = "kv/reshape_and_cache_fp8.cu", f"reshape_and_cache_fp8_{suffix(keys.dtype)}"
        sizes = (*[_one(keys.device)] * 2, tokens, heads, head_dim, 0, *strides)
    else:
        sizes = (tokens, *(n * keys.element_size() for n in (heads * head_dim, *strides)))
    tensors = (memory(keys), memory(values), key_pool, value_pool, slot_mapping.contiguous())
    call(file, name, *tensors, *sizes)


@cache
def _one(device: torch.device) -> Tensor:
    """The scale of an 8-bit cache whose scales are folded into the weights."""
    return torch.ones(1, device=device)
