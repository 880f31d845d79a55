"""What the exercises of notebook 03 share: an oracle that keeps the block tables by hand."""

import copy
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Observer

FAILED = "A call that fails changes nothing."


def new_manager(KVCacheManager: Any, num_blocks: int, block_size: int, num_layers: int = 1) -> Any:
    return KVCacheManager(
        num_blocks=num_blocks, block_size=block_size, num_heads=1, head_dim=2, num_layers=num_layers
    )


class Books:
    """Which blocks each request has, and how many tokens, written down call by call."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}

    def record(self, name: str, table: list[int], length: int) -> None:
        self.tables[name], self.lengths[name] = list(table), length

    def forget(self, name: str) -> None:
        del self.tables[name], self.lengths[name]

    def users(self) -> list[int]:
        held = Counter(block for table in self.tables.values() for block in table)
        return [held[block] for block in range(self.num_blocks)]

    def free(self) -> list[int]:
        return [block for block, users in enumerate(self.users()) if users == 0]

    def needed(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def compare(self, see: Observer, manager: Any, after: str, because: str = "") -> None:
        """Note tables, lengths, users and free blocks of the learner's manager."""
        tables = {name: list(table) for name, table in manager.block_tables.items()}
        see.equal(f"block_tables after {after}", tables, self.tables, because)
        see.equal(f"lengths after {after}", dict(manager.lengths), self.lengths, because)
        counted = because or "A block has as many users as tables hold it."
        users = [manager.pool.ref_count(block) for block in range(self.num_blocks)]
        see.equal(f"the count of users per block after {after}", users, self.users(), counted)
        unused = because or "These are the blocks that no table holds."
        free = sorted(manager.free_block_list)
        see.equal(f"the list of free blocks after {after}", free, self.free(), unused)


def slots(table: list[int], block_size: int, start: int, end: int) -> list[int]:
    """The slots of the tokens `start` to `end`: every slot of the table, written out one by one."""
    every = [block * block_size + offset for block in table for offset in range(block_size)]
    return every[start:end]


def after(place: str, steps: list[str]) -> str:
    """Where a case is: its last step is the one that is told about."""
    before = steps[:-1] if len(steps) < 9 else ["…", *steps[-8:-1]]
    return f"{place}, after {', '.join(before)}" if before else place


def picture_of(manager: Any) -> Callable[[], Any]:
    """Draws the pool as it is when the picture is drawn, and marks what changed since this call."""
    before = frozen(manager)

    def draw() -> Any:
        return viz.draw_blocks(viz.snapshot_pool(frozen(manager)), viz.snapshot_pool(before))

    return draw


def frozen(manager: Any) -> Any:
    """A copy of what a picture needs; a length that was not recorded is drawn as 0."""
    tables = copy.deepcopy(manager.block_tables)
    return SimpleNamespace(
        block_size=manager.block_size,
        block_tables=tables,
        lengths={name: manager.lengths.get(name, 0) for name in tables},
        pool=copy.deepcopy(manager.pool),
    )


def film(states: dict[str, Any], frames: list[int] | None = None) -> Any:
    """A film strip of recorded pools, by title."""
    return viz.film_strip([*states.values()], viz.draw_blocks, [*states], frames)
