"""What the checks of notebook 03 share: managers to try, and what must hold of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from yaie.course.core.expect import equal

NO_RETURN = "Did the function reach its end without `return`?"


def new_manager(KVCacheManager: Any, num_blocks: int, block_size: int, num_layers: int = 1) -> Any:
    return KVCacheManager(
        num_blocks=num_blocks, block_size=block_size, num_heads=1, head_dim=2, num_layers=num_layers
    )


def state_of(manager: Any) -> dict[str, Any]:
    """Everything that a call which fails must leave as it was."""
    return {
        "block_tables": {name: list(table) for name, table in manager.block_tables.items()},
        "lengths": dict(manager.lengths),
        "users of each block": users_of(manager.pool),
        "free blocks": sorted(manager.free_block_list),
    }


def users_of(pool: Any) -> list[int]:
    return [pool.ref_count(block) for block in range(pool.num_blocks)]


def unchanged(manager: Any, before: dict[str, Any], call: str, because: str) -> None:
    for name, value in state_of(manager).items():
        equal(value, before[name], f"{name} after {call}", because=because)


def accounts(manager: Any, call: str) -> None:
    """Every block is free, or has as many users as tables hold it."""
    held = Counter(block for table in manager.block_tables.values() for block in table)
    for block in range(manager.pool.num_blocks):
        count = manager.pool.ref_count(block)
        because = "It is how many tables hold the block; `pool.allocate` and `share` count them."
        equal(count, held[block], f"the users of block {block} after {call}", because)
    free = [block for block in range(manager.pool.num_blocks) if not held[block]]
    equal(sorted(manager.free_block_list), free, f"the free blocks after {call}")


def picture_of(manager: Any, *before: Any) -> Callable[[], Any]:
    """Draw the state at a failure, with the state before it if that was recorded."""

    def draw() -> Any:
        from yaie.course.viz import draw_blocks, snapshot_pool

        return draw_blocks(snapshot_pool(manager), *before)

    return draw


def snapshot(manager: Any) -> Any:
    from yaie.course.viz import snapshot_pool

    return snapshot_pool(manager)


def oracle_slots(table: list[int], block_size: int, start: int, end: int) -> list[int]:
    """Every slot of the table, written out one by one."""
    every = [block * block_size + offset for block in table for offset in range(block_size)]
    return every[start:end]
