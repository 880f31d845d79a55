"""Copying and gathering the paged cache, and a cache of 8-bit floats, by CUDA C++ kernels."""

from collections.abc import Sequence
from functools import reduce
from operator import attrgetter, or_

import torch

from yaie.ops.cuda.launching import call, constants, memory, suffix, token_rows
from yaie.ops.registry import Unsupported

MOST_PAIRS = constants("kv/copy_blocks.cu")["MOST_PAIRS"]
WIDEST = 16  # bytes of a load or store
_extent = attrgetter("nbytes", "shape")


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


def gather_kv(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_tokens: int,
    key_scale: torch.Tensor | None,
    value_scale: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values of some sequences, contiguous; those of 8 bits times their scales."""
    keys, values = (
        pool.new_empty(num_tokens, *pool.shape[2:], dtype=dtype) for pool in (key_pool, value_pool)
    )
    given = (key_pool, value_pool, block_tables.contiguous(), cu_seqlens.contiguous())
    if key_scale is None:
        row = key_pool.shape[2] * key_pool.shape[3] * key_pool.element_size()
        sizes = (*block_tables.shape, key_pool.shape[1], row)
        call("kv/gather_kv.cu", "gather_kv", *given, keys, values, *sizes)
    else:
        call(
            *("kv/gather_kv_fp8.cu", f"gather_kv_fp8_{suffix(dtype)}", *given),
            *(key_scale.contiguous(), value_scale.contiguous(), keys, values),
            *(*block_tables.shape, *key_pool.shape[1:], _per_head(key_scale)),
        )
    return keys, values


def _per_head(scale: torch.Tensor) -> int:
    return int(scale.numel() > 1)


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """Copy blocks in every pool, all layers in one launch. See `lessons.ops.kv`."""
    pools = [*key_pools, *value_pools]
    # With a hundred pools, loops in Python take longer than the kernel, so this uses `map`.
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
