"""The prefix cache again, as a dict: slow, short, and with nothing in common with the tree.

What the radix cache does is compared with this one, step by step, in the checks of notebook 04.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Key = tuple[str, tuple[int, ...]]  # the namespace, and all tokens up to the end of a block


class NaiveCache:
    """Every cached block under all the tokens that it depends on.

    Attributes:
        blocks: the block of each key.
        used: when each key was last used, on a clock that ticks once an operation.
        locks: how many users need each key to stay.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.blocks: dict[Key, int] = {}
        self.used: dict[Key, int] = {}
        self.locks: Counter[Key] = Counter()
        self._clock = 0

    def keys(self, token_ids: Sequence[int], namespace: str = "") -> list[Key]:
        """The keys of the full blocks of `token_ids`."""
        ends = range(self.block_size, len(token_ids) + 1, self.block_size)
        return [(namespace, tuple(token_ids[:end])) for end in ends]

    def match(self, token_ids: Sequence[int], namespace: str = "") -> list[Key]:
        """The keys of the blocks that may be reused; one token is left over."""
        found: list[Key] = []
        for key in self.keys(token_ids[:-1], namespace):
            if key not in self.blocks:
                break
            found.append(key)
        self._touch(found)
        return found

    def insert(
        self, token_ids: Sequence[int], blocks: Sequence[int], namespace: str = ""
    ) -> list[Key]:
        """Keep the full blocks under keys that have none yet; returns all keys of the tokens."""
        keys = self.keys(token_ids, namespace)
        for key, block in zip(keys, blocks, strict=False):
            self.blocks.setdefault(key, block)
        self._touch(keys)
        return keys

    def evict(self, num_blocks: int) -> list[int]:
        """Forget up to `num_blocks` blocks: leaves that nobody needs, oldest first."""
        evicted: list[int] = []
        while len(evicted) < num_blocks:
            continued = {(space, tokens[: -self.block_size]) for space, tokens in self.blocks}
            leaves = [k for k in self.blocks if k not in continued and not self.locks[k]]
            if not leaves:
                break
            oldest = min(leaves, key=self.used.__getitem__)
            evicted.append(self.blocks.pop(oldest))
        return evicted

    @property
    def num_evictable(self) -> int:
        """How many blocks nobody needs."""
        return sum(not self.locks[key] for key in self.blocks)

    def _touch(self, keys: list[Key]) -> None:
        self._clock += 1
        for key in keys:
            self.used[key] = self._clock
