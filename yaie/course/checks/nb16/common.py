"""What the checks of notebook 16 share: pools with a past, and what became of each slot."""

from __future__ import annotations

from typing import Any

from yaie.course.core.expect import fail


def pool_of(num_blocks: int, block_size: int, heads: int, dim: int, seed: int = 0) -> Any:
    """A pool in which other requests' numbers lie: all below 0, no two alike."""
    import torch

    size = num_blocks * block_size * heads * dim
    numbers = -1.0 - torch.arange(size, dtype=torch.float32) - 0.5 * seed
    return numbers.view(num_blocks, block_size, heads, dim)


def rows_of(pool: Any) -> Any:
    """The slots of a pool, `[slots, KV heads × head_dim]`, as a view."""
    return pool.flatten(0, 1).flatten(1)


def require_others_kept(got: Any, before: Any, mine: Any, what: str, told: str) -> None:
    """Reject a change of a row of `got` that is not in `mine`, a mask of rows."""
    changed = (got != before) & ~mine[:, None]
    if bool(changed.any()):
        index = int(changed.any(1).nonzero()[0])
        zeroed = " It holds 0 now." if not bool(got[index][changed[index]].any()) else ""
        fail(f"{what} {index} has changed, and nobody asked for that.{zeroed} {told}")
