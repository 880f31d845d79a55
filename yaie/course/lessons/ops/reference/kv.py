"""Copying and gathering the paged cache, and a cache of 8-bit floats, in plain PyTorch."""

from collections.abc import Sequence

import torch

FP8_MAX = 448.0  # the largest finite float8_e4m3fn


def to_fp8(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`[tokens, heads, head_dim]` / scale as float8_e4m3fn: the nearest, at most ±448; NaN stays.

    Args:
        scale: float32, one for each head, or one in all.
    """
    scaled = x.float() / scale.view(1, -1, 1)
    return scaled.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def from_fp8(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`[tokens, heads, head_dim]` of float8_e4m3fn × scale, rounded to `dtype`."""
    return (x.float() * scale.view(1, -1, 1)).to(dtype)


def reshape_and_cache_fp8(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
) -> None:
    """`reshape_and_cache` into pools of float8_e4m3fn."""
    for new, pool, scale in ((keys, key_pool, key_scale), (values, value_pool, value_scale)):
        codes = to_fp8(new, scale).view(torch.uint8)
        pool.view(torch.uint8).flatten(0, 1).index_copy_(0, slot_mapping, codes)


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
    """The keys and values of some sequences, end to end; see `lessons.ops.kv`."""
    block_size = key_pool.shape[1]
    token = torch.arange(num_tokens, device=key_pool.device)
    sequence = torch.searchsorted(cu_seqlens[1:].long(), token, right=True)
    position = token - cu_seqlens.long()[sequence]
    block = block_tables.long()[sequence, position // block_size]
    slots = block * block_size + position % block_size

    def gathered(pool: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        if scale is None:
            return pool.flatten(0, 1)[slots]
        codes = pool.view(torch.uint8).flatten(0, 1)[slots]
        return from_fp8(codes.view(torch.float8_e4m3fn), scale, dtype)

    return gathered(key_pool, key_scale), gathered(value_pool, value_scale)


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """Copy the blocks that `[pairs, 2]` names, source and target, in every pool.

    Sources are read before any target is written, so a chain of pairs moves each block once.
    """
    sources, targets = block_mapping.unbind(dim=1)
    for pool in (*key_pools, *value_pools):
        if pool.element_size() == 1:  # not every PyTorch can index 8-bit floats
            pool = pool.view(torch.uint8)
        pool[targets] = pool[sources]
