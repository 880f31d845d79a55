"""Moves within the paged cache by CUDA C++ kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import attrgetter, or_
from pathlib import Path

import torch

from yaie.ops.cuda.launching import call, memory, suffix, token_rows
from yaie.ops.registry import Unsupported

MOST_PAIRS = 4096  # of copy_blocks.cu, which keeps a list of them in shared memory
WIDEST = 16  # bytes of a load or store
_extent = attrgetter("nbytes", "shape")


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write new keys and values into their slots; tokens may lie apart, as in a fused product."""
    pools = key_pool, value_pool
    _write("kv/reshape_and_cache.cu", "reshape_and_cache", keys, values, *pools, slot_mapping)


def reshape_and_cache_simple(
    *arguments: torch.Tensor, file: str | Path = "kv/reshape_and_cache_simple.cu"
) -> None:
    """The same by the first rung, or by a file like it."""
    _write(file, "reshape_and_cache_simple", *arguments)


def _write(
    file: str | Path,
    name: str,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    keys, values = token_rows(keys), token_rows(values)
    size = keys.element_size()
    call(
        *(file, name),
        *(memory(keys), memory(values), key_pool, value_pool, slot_mapping.contiguous()),
        *(len(keys), keys.shape[1] * keys.shape[2] * size),
        *(keys.stride(0) * size, values.stride(0) * size),
    )


def reshape_and_cache_fp8(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
) -> None:
    """The same into pools of float8_e4m3fn, divided by scales of the heads or of the tensor."""
    keys, values = token_rows(keys), token_rows(values)
    call(
        *("kv/reshape_and_cache_fp8.cu", f"reshape_and_cache_fp8_{suffix(keys.dtype)}"),
        *(memory(keys), memory(values), key_pool, value_pool, slot_mapping.contiguous()),
        *(key_scale.contiguous(), value_scale.contiguous(), *keys.shape, _per_head(key_scale)),
        *(keys.stride(0), values.stride(0)),
    )


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
    if len(block_mapping) > MOST_PAIRS:
        raise Unsupported(f"there may be {MOST_PAIRS} pairs, got {len(block_mapping)}")
    (block_bytes,) = sizes
    unit = widest_unit(block_bytes, *map(torch.Tensor.data_ptr, pools))
    call(
        *("kv/copy_blocks.cu", "copy_blocks", pools, block_mapping.contiguous(), len(pools)),
        *(len(block_mapping), block_bytes, unit),
    )


def gather_kv(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values of some sequences, contiguous."""
    keys, values = (pool.new_empty(num_tokens, *pool.shape[2:]) for pool in (key_pool, value_pool))
    row = key_pool.shape[2] * key_pool.shape[3] * key_pool.element_size()
    call(
        *("kv/gather_kv.cu", "gather_kv", key_pool, value_pool, block_tables.contiguous()),
        *(cu_seqlens.contiguous(), keys, values, *block_tables.shape, key_pool.shape[1], row),
    )
    return keys, values


def gather_kv_fp8(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from pools of float8_e4m3fn, multiplied by their scales."""
    keys, values = (
        torch.empty(num_tokens, *pool.shape[2:], dtype=dtype, device=pool.device)
        for pool in (key_pool, value_pool)
    )
    call(
        *("kv/gather_kv_fp8.cu", f"gather_kv_fp8_{suffix(dtype)}", key_pool, value_pool),
        *(block_tables.contiguous(), cu_seqlens.contiguous()),
        *(key_scale.contiguous(), value_scale.contiguous(), keys, values),
        *(*block_tables.shape, *key_pool.shape[1:], _per_head(key_scale)),
    )
    return keys, values


def widest_unit(*numbers: int) -> int:
    """The widest unit of 1, 2, 4, 8 or 16 bytes that divides all of these sizes and addresses."""
    together = reduce(or_, numbers, WIDEST)
    return together & -together


def _per_head(scale: torch.Tensor) -> int:
    return int(scale.numel() > 1)
