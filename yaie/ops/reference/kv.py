"""Writing the paged cache, in plain PyTorch."""

import torch


def reshape_and_cache(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write `[tokens, KV heads, head_dim]` into the slots of two pools; see `yaie.ops.kv`."""
    for pool, new in ((key_pool, keys), (value_pool, values)):
        if pool.element_size() == 1:  # as bytes, since torch cannot index 8-bit floats everywhere
            largest = torch.finfo(pool.dtype).max
            new = new.clamp(-largest, largest).to(pool.dtype).view(torch.uint8)
            pool = pool.view(torch.uint8)
        pool.flatten(0, 1).index_copy_(0, slot_mapping, new)
