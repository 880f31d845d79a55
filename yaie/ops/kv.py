"""Operators on the memory of the paged cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.ops.checks import FLOATS, FP8, check_distinct, check_range, check_tensor
from yaie.ops.library import operator
from yaie.ops.registry import AUTO


@operator(lambda *_: None, writes=("key_pool", "value_pool"))
def reshape_and_cache(
    keys: Tensor,
    values: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    slot_mapping: Tensor,
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


def check_slots(slot_mapping: Tensor, pool_shape: Sequence[int]) -> None:
    """Check that slots are in the pool, and none is written twice; on a CPU only."""
    check_range("slot_mapping", slot_mapping, pool_shape[0] * pool_shape[1])
    check_distinct("slot_mapping", slot_mapping, "slot")
