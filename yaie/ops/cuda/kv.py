"""Writing the paged cache by CUDA C++ kernels."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from yaie.ops.cuda.launching import call, memory, suffix, token_rows


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    file: str | Path = "kv/reshape_and_cache.cu",
    name: str = "reshape_and_cache",
) -> None:
    """Write new keys and values into their slots; tokens may lie apart, as in a fused product.
    `name` is a launcher of `file`."""
    keys, values = token_rows(keys), token_rows(values)
    if key_pool.element_size() == 1:
        call(
            *("kv/reshape_and_cache_fp8.cu", f"reshape_and_cache_fp8_{suffix(keys.dtype)}"),
            *(memory(keys), memory(values), key_pool, value_pool, slot_mapping.contiguous()),
            *(*[_one(keys.device)] * 2, *keys.shape, 0, keys.stride(0), values.stride(0)),
        )
        return
    size = keys.element_size()
    call(
        *(file, name),
        *(memory(keys), memory(values), key_pool, value_pool, slot_mapping.contiguous()),
        *(keys.shape[0], keys.shape[1] * keys.shape[2] * size),
        *(keys.stride(0) * size, values.stride(0) * size),
    )


@cache
def _one(device: torch.device) -> torch.Tensor:
    """The scale of an 8-bit cache whose scales are folded into the weights."""
    return torch.ones(1, device=device)
