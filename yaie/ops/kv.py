"""Operators on the memory of the paged cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yaie.ops.checks import FLOATS, FP8, check_distinct, check_range, check_tensor
from yaie.ops.library import define, operator
from yaie.ops.registry import AUTO


@operator(lambda *_: None, writes=("key_pool", "value_pool"))
def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    backend: str = AUTO,
) -> None:
    """Write the keys and values of new tokens into their slots.

    Args:
        keys, values: `[tokens, KV heads, head_dim]`.
        key_pool, value_pool: `[num_blocks, block_size, KV heads, head_dim]`, of the same dtype
            or float8_e4m3fn, where what lies beyond ±448 is stored as that; written in place.
        slot_mapping: int64 `[tokens]`, block × block_size + offset for each token, none twice.
    """
    check_tensor("keys", keys, ("tokens", "kv_heads", "head_dim"), FLOATS)
    check_tensor("values", values, tuple(keys.shape), (keys.dtype,), like=keys)
    shape = ("num_blocks", "block_size", *keys.shape[1:])
    check_tensor("key_pool", key_pool, shape, (keys.dtype, FP8), like=keys, contiguous=True)
    shape = tuple(key_pool.shape)
    check_tensor("value_pool", value_pool, shape, (key_pool.dtype,), like=keys, contiguous=True)
    check_tensor("slot_mapping", slot_mapping, (keys.shape[0],), (torch.int64,), like=keys)
    check_slots(slot_mapping, shape)


def check_slots(slot_mapping: torch.Tensor, pool_shape: Sequence[int]) -> None:
    """Check that slots are in the pool, and none is written twice; on a CPU only."""
    check_range("slot_mapping", slot_mapping, pool_shape[0] * pool_shape[1])
    check_distinct("slot_mapping", slot_mapping, "slot")


def copy_blocks(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
    *,
    backend: str = AUTO,
) -> None:
    """Copy blocks within the cache, in every layer.

    Args:
        key_pools, value_pools: one tensor per layer,
            `[num_blocks, block_size, KV heads, head_dim]`; written in place.
        block_mapping: int64 `[pairs, 2]`, source and target of each copy; no target twice. Sources
            are read before any target is written.
    """
    check_tensor("block_mapping", block_mapping, ("pairs", 2), (torch.int64,))
    check_distinct("block_mapping", block_mapping[:, 1], "target")
    if len(key_pools) != len(value_pools):
        raise ValueError(
            f"key_pools and value_pools must be one per layer, got {len(key_pools)} and "
            f"{len(value_pools)}"
        )
    shape = ("num_blocks", "block_size", "kv_heads", "head_dim")
    for name, pools in (("key_pools", key_pools), ("value_pools", value_pools)):
        for layer, pool in enumerate(pools):
            check_tensor(f"{name}[{layer}]", pool, shape, (*FLOATS, FP8), like=block_mapping)
            check_range("block_mapping", block_mapping, pool.shape[0])
    if key_pools:
        _copy_blocks(list(key_pools), list(value_pools), block_mapping, backend=backend)


def copy_blocks_cuda(
    key_pools: Sequence[torch.Tensor],
    value_pools: Sequence[torch.Tensor],
    block_mapping: torch.Tensor,
) -> None:
    """`copy_blocks` by the CUDA C++ kernel: on a GPU, or on a CPU emulated.

    In place, for a list of pools with one per layer, by int64 pairs: the interface of vLLM's
    `copy_blocks`. Others take one tensor, or return a copy, which needs a second cache.
    """
    copy_blocks(key_pools, value_pools, block_mapping, backend="cuda")


_copy_blocks = define(
    "copy_blocks(Tensor(a!)[] key_pools, Tensor(b!)[] value_pools, Tensor block_mapping, *, "
    'str backend="auto") -> ()',
    lambda *_: None,
)
