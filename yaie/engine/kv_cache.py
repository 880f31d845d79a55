"""The paged KV cache: keys and values in blocks, found through block tables.

`BlockPool` counts the users of each block and holds no tensors. `KVCacheManager` adds the block
table of every request and the memory that the tables point into.

Paging the cache as an operating system pages memory: Kwon et al., "Efficient Memory Management
for Large Language Model Serving with PagedAttention", 2023.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


class OutOfBlocks(RuntimeError):
    """More blocks were asked for than are free. Nothing was taken."""


def blocks_needed(num_tokens: int, block_size: int) -> int:
    """Count the blocks that hold `num_tokens` tokens; the last may be partly filled.

    >>> blocks_needed(20, block_size=16)
    2
    """
    return -(-num_tokens // block_size)


class BlockPool:
    """The blocks of a cache, by number: which are free, and how many users each other one has."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, got {num_blocks}")
        self.num_blocks = num_blocks
        self.free_block_list: deque[int] = deque(range(num_blocks))
        self._ref_counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """How many blocks are free."""
        return len(self.free_block_list)

    def ref_count(self, block: int) -> int:
        """How many users `block` has: 0 if it is free."""
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block must be from 0 to {self.num_blocks - 1}, got {block}")
        return self._ref_counts[block]

    def allocate(self, num_blocks: int) -> list[int]:
        """Take `num_blocks` free blocks, each with one user.

        Raises:
            OutOfBlocks: fewer are free. All or nothing: the pool is as it was.
        """
        if num_blocks == 0:  # most tokens need no new block
            return []
        if num_blocks < 0:
            raise ValueError(f"num_blocks must not be negative, got {num_blocks}")
        if num_blocks > self.num_free:
            raise OutOfBlocks(
                f"{num_blocks} blocks wanted, {self.num_free} of {self.num_blocks} are free"
            )
        blocks = [self.free_block_list.popleft() for _ in range(num_blocks)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def check_used(self, blocks: Sequence[int]) -> None:
        """Raise a ValueError if one of `blocks` is free, or outside the pool."""
        are_blocks = min(blocks, default=0) >= 0 and max(blocks, default=0) < self.num_blocks
        if are_blocks and all(map(self._ref_counts.__getitem__, blocks)):
            return  # one check for all, in C
        for block in blocks:
            if self.ref_count(block) == 0:
                raise ValueError(f"share: block {block} is free, so it cannot be shared")

    def share(self, blocks: Iterable[int]) -> None:
        """Count one more user for each of `blocks`, which must be in use already."""
        blocks = list(blocks)
        self.check_used(blocks)
        counts = self._ref_counts
        for block in blocks:
            counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Count one user less for each of `blocks`. A block without users is free again.

        Args:
            blocks: block numbers, in any iterable. One that occurs twice loses two users.

        Raises:
            ValueError: a number is outside the pool, or a block has fewer users than it is to
                lose. Nothing is released: the pool is as it was.
        """
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            if self.ref_count(block) < times:
                raise ValueError(
                    f"release: block {block} has {self.ref_count(block)} users and was "
                    f"released {times} times"
                )
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)


@dataclass(frozen=True)
class KVBlock:
    """The memory of one block in one layer: views, so that writing to them writes the cache."""

    keys: torch.Tensor
    values: torch.Tensor


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A tensor of zeros. On a CPU it takes memory only where it was written to."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, access=mmap.ACCESS_COPY)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


class KVCacheManager:
    """Block tables, and the pools of keys and values that they point into.

    Token `i` of a request lies in block `block_tables[id][i // block_size]` at offset
    `i % block_size`. The two together, `block * block_size + offset`, are its *slot*.

    Attributes:
        key_pools, value_pools: a tensor for each layer,
            `[num_blocks, block_size, num_heads, head_dim]`.
        block_tables: the blocks of each request, in the order of its tokens.
        lengths: how many tokens of each request have a slot; some may be yet to come.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        num_layers: int = 1,
        device: torch.device | str = "cpu",
        pool: BlockPool | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks) if pool is None else pool
        if self.pool.num_blocks != num_blocks:
            raise ValueError(
                f"pool has {self.pool.num_blocks} blocks, num_blocks says {num_blocks}"
            )
        shape = (num_blocks, block_size, num_heads, head_dim)
        self.key_pools = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.value_pools = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.block_tables: dict[Hashable, list[int]] = {}
        self.lengths: dict[Hashable, int] = {}

    @property
    def free_block_list(self) -> list[int]:
        """The free blocks, in the order in which they will be taken."""
        return list(self.pool.free_block_list)

    @cached_property
    def blocks(self) -> list[KVBlock]:
        """Every block of the first layer: `.keys`, `.values`, `[block_size, heads, head_dim]`."""
        return [KVBlock(k, v) for k, v in zip(self.key_pools[0], self.value_pools[0], strict=True)]

    # ------------------------------------------------------------------------ life of a request

    def allocate_blocks(
        self, request_id: Hashable, num_tokens: int, prefix_blocks: Sequence[int] = ()
    ) -> list[int]:
        """Give a new request a block table for its first `num_tokens` tokens.

        Args:
            request_id: must not have a table yet.
            num_tokens: tokens of the request, those in `prefix_blocks` included.
            prefix_blocks: full blocks, in use already, that hold the request's first tokens.
                They are shared, and only the rest is allocated.

        Returns:
            A copy of the block table.

        Raises:
            ValueError: `request_id` has a table already, `prefix_blocks` hold more than
                `num_tokens` tokens, or one of them is free.
            OutOfBlocks: too few blocks are free.
            In every case nothing is allocated, shared or recorded.
        """
        if request_id in self.block_tables:
            raise ValueError(
                f"request_id {request_id!r} already has {len(self.block_tables[request_id])} "
                "blocks; free them first, or call append_tokens to grow"
            )
        if num_tokens < len(prefix_blocks) * self.block_size:
            raise ValueError(
                f"num_tokens must be at least the {len(prefix_blocks) * self.block_size} tokens "
                f"that prefix_blocks hold, got {num_tokens}"
            )
        missing = blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        self.pool.share(prefix_blocks)  # fails if one is free, before a new block could be it
        try:
            new_blocks = self.pool.allocate(missing)
        except OutOfBlocks:
            self.pool.release(prefix_blocks)
            raise
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])

    def append_tokens(self, request_id: Hashable, num_tokens: int = 1) -> list[int]:
        """Make room for `num_tokens` more tokens, and return the slots to write them to.

        New blocks are taken when the last one is full. If the last one is partly filled and
        shared with a fork, the request first gets a copy of its own, keys and values of every
        layer (copy-on-write). With `num_tokens` 0 nothing changes.

        Raises:
            KeyError: `request_id` has no block table.
            ValueError: `num_tokens` is negative.
            OutOfBlocks: too few blocks are free. The request and the pool are as they were.
        """
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        writes_into_tail = num_tokens > 0 and length % self.block_size != 0
        copy_tail = writes_into_tail and self.pool.ref_count(table[-1]) > 1
        missing = blocks_needed(length + num_tokens, self.block_size) - len(table)
        new_blocks = self.pool.allocate(missing + copy_tail)
        if copy_tail:
            shared, table[-1] = table[-1], new_blocks.pop()
            self._copy_block(shared, table[-1])
            self.pool.release([shared])
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        return self.slot_mapping(request_id, length, length + num_tokens)

    def fork(self, parent_id: Hashable, child_id: Hashable) -> None:
        """Start a request as a copy of another: the same blocks, each with one more user."""
        if child_id in self.block_tables:
            raise ValueError(f"child_id {child_id!r} already has a block table")
        table = self._table(parent_id)
        self.pool.share(table)
        self.block_tables[child_id] = list(table)
        self.lengths[child_id] = self.lengths[parent_id]

    def free_blocks(self, request_id: Hashable) -> None:
        """End a request: release its blocks and forget its table."""
        self.pool.release(self._table(request_id))
        del self.block_tables[request_id]
        del self.lengths[request_id]

    def _table(self, request_id: Hashable) -> list[int]:
        if request_id not in self.block_tables:
            raise KeyError(f"request_id {request_id!r} has no block table")
        return self.block_tables[request_id]

    # ------------------------------------------------------------------------ memory

    def slot_mapping(self, request_id: Hashable, start: int, end: int) -> list[int]:
        """The slots of the request's tokens `start` to `end` (exclusive): `[]` if they are equal.

        Raises:
            KeyError: `request_id` has no block table.
            ValueError: `start` to `end` is not a range within the request's tokens. A last block
                that is partly filled has slots beyond them, which hold nothing of the request.
        """
        table = self._table(request_id)
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(
                f"start, end: tokens {start} to {end} are not within the "
                f"{self.lengths[request_id]} tokens of request {request_id!r}"
            )
        size = self.block_size
        return [table[i // size] * size + i % size for i in range(start, end)]

    def _copy_block(self, source: int, target: int) -> None:
        for pool in (*self.key_pools, *self.value_pools):
            pool[target] = pool[source]
