"""Moves within the paged cache by CUDA C++ kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import attrgetter, or_
from pathlib import Path

import torch

from yaie.ops.cuda.launching import call, constants, memory, suffix, token_rows
from yaie.ops.registry import Unsupported

MOST_PAIRS = constants("kv/copy_blocks.cu")["MOST_PAIRS"]
WIDEST = 16  # bytes of a load or store
_extent = attrgetter("nbytes", "shape")


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


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """Copy blocks in every pool, all layers in one launch. See `yaie.ops.kv.copy_blocks`."""
    pools = [*key_pools, *value_pools]
    # There may be a hundred pools, and Python's loops take longer than the kernel: so `map`.
    if not all(map(torch.Tensor.is_contiguous, pools)):
        raise Unsupported("pools must be contiguous")
    sizes = {nbytes // shape[0] if shape[0] else 0 for nbytes, shape in map(_extent, pools)}
    if len(sizes) > 1 or max(sizes) >= 2**31:
        raise Unsupported(
            f"blocks must have one size in all pools, below 2 GiB, got {sorted(sizes)} bytes"
        )
    if block_mapping.shape[0] > MOST_PAIRS:
        raise Unsupported(f"pairs are at most {MOST_PAIRS}, got {block_mapping.shape[0]}")
    (block_bytes,) = sizes
    unit = widest_unit(block_bytes, *map(torch.Tensor.data_ptr, pools))
    call(
        *("kv/copy_blocks.cu", "copy_blocks", pools, block_mapping.contiguous(), len(pools)),
        *(block_mapping.shape[0], block_bytes, unit),
    )


def widest_unit(*numbers: int) -> int:
    """The widest unit of 1, 2, 4, 8 or 16 bytes that divides all of these sizes and addresses."""
    together = reduce(or_, numbers, WIDEST)
    return together & -together
