"""What the exercises of notebook 17 share: pools that hold other requests' numbers."""

from typing import Any

import torch


def pool_of(num_blocks: int, block_size: int, heads: int, dim: int, seed: int = 0) -> Any:
    """A pool in which other requests' numbers lie: all below 0, no two alike."""
    size = num_blocks * block_size * heads * dim
    numbers = -1.0 - torch.arange(size, dtype=torch.float32) - 0.5 * seed
    return numbers.view(num_blocks, block_size, heads, dim)


def rows_of(pool: Any) -> Any:
    """The slots of a pool, `[slots, KV heads × head_dim]`, as a view."""
    return pool.flatten(0, 1).flatten(1)
