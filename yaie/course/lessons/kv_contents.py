"""Keys and values of one request, in and out of a paged cache. The engine has operators for that:
`yaie.ops.kv` stores those of a whole batch, and attention reads them where they are.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from yaie.engine.kv_cache import KVCacheManager


def write_kv(
    kv: KVCacheManager,
    request_id: Hashable,
    start: int,
    keys: torch.Tensor,
    values: torch.Tensor,
    layer: int = 0,
) -> None:
    """Store `keys` and `values` (`[n, heads, head_dim]`) of the tokens from `start` on."""
    shape = (len(keys), *kv.key_pools[layer].shape[2:])
    for name, tensor in (("keys", keys), ("values", values)):
        if tensor.shape != shape:  # assignment would broadcast it
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    slots = torch.tensor(kv.slot_mapping(request_id, start, start + len(keys)), dtype=torch.int64)
    kv.key_pools[layer].flatten(0, 1)[slots] = keys
    kv.value_pools[layer].flatten(0, 1)[slots] = values


def read_kv(
    kv: KVCacheManager, request_id: Hashable, layer: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy a request's keys and values out of the pool, `[tokens, heads, head_dim]` each."""
    length = kv.lengths.get(request_id, 0)  # `slot_mapping` names an unknown request
    slots = torch.tensor(kv.slot_mapping(request_id, 0, length), dtype=torch.int64)
    return kv.key_pools[layer].flatten(0, 1)[slots], kv.value_pools[layer].flatten(0, 1)[slots]
