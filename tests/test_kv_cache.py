"""Blocks, their users and their contents."""

import copy
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracles import examples

from yaie.course.lessons.kv_contents import read_kv, write_kv
from yaie.engine.kv_cache import BlockPool, KVCacheManager, OutOfBlocks


def manager(num_blocks=8, block_size=4, **options) -> KVCacheManager:
    return KVCacheManager(num_blocks, block_size, num_heads=2, head_dim=3, **options)


def snapshot(kv: KVCacheManager):
    """All that a failed call must leave as it was."""
    tables = {request_id: list(table) for request_id, table in kv.block_tables.items()}
    counts = [kv.pool.ref_count(block) for block in range(kv.pool.num_blocks)]
    return tables, dict(kv.lengths), counts, kv.free_block_list


def tokens(first: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values that say which tokens they belong to."""
    ids = torch.arange(first, first + number, dtype=torch.float32).view(-1, 1, 1)
    return ids.expand(number, 2, 3), -ids.expand(number, 2, 3)


# ------------------------------------------------------------------------------------- pool


class PoolMachine(RuleBasedStateMachine):
    """A pool against a list of (user, block) pairs."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(6)
        self.users: list[list[int]] = []

    @rule(number=st.integers(0, 7))
    def allocate(self, number):
        free = self.pool.num_free
        if number > free:
            with pytest.raises(OutOfBlocks, match=f"{number} blocks wanted, {free} of 6 are free"):
                self.pool.allocate(number)
        else:
            blocks = self.pool.allocate(number)
            assert len(set(blocks)) == number
            assert not set(blocks) & {block for user in self.users for block in user}
            self.users.append(blocks)

    @rule(data=st.data())
    def share(self, data):
        blocks = data.draw(st.lists(st.integers(0, 5), max_size=4))
        owned = {block for user in self.users for block in user}
        if set(blocks) <= owned:
            self.pool.share(blocks)
            self.users.append(blocks)
        else:
            with pytest.raises(ValueError, match="is free"):
                self.pool.share(blocks)

    @rule(data=st.data())
    def release(self, data):
        if self.users:
            self.pool.release(self.users.pop(data.draw(st.integers(0, len(self.users) - 1))))

    @rule(blocks=st.lists(st.integers(0, 5), min_size=1, max_size=5))
    def release_too_often(self, blocks):
        counts = Counter(block for user in self.users for block in user)
        if any(counts[block] < times for block, times in Counter(blocks).items()):
            wanted = r"release: block \d has \d users and was released \d times"
            with pytest.raises(ValueError, match=wanted):
                self.pool.release(iter(blocks))

    @invariant()
    def recount(self):
        counts = Counter(block for user in self.users for block in user)
        assert [self.pool.ref_count(block) for block in range(6)] == [counts[b] for b in range(6)]
        assert sorted(self.pool.free_block_list) == [b for b in range(6) if not counts[b]]
        assert self.pool.num_free == len(self.pool.free_block_list)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = examples(40, steps=30)


def test_free_blocks_are_taken_in_turn():
    pool = BlockPool(3)
    first, second, third = pool.allocate(3)
    pool.release([second])
    pool.release([first])
    assert pool.allocate(2) == [second, first]
    pool.release([third, second])
    assert list(pool.free_block_list) == [third, second]


@pytest.mark.parametrize("block", [-1, 2, 99])
def test_blocks_that_do_not_exist(block):
    pool = BlockPool(2)
    pool.allocate(2)
    for call in (pool.ref_count, lambda b: pool.share([0, b]), lambda b: pool.release([0, b])):
        with pytest.raises(ValueError, match=f"block must be from 0 to 1, got {block}"):
            call(block)
    assert [pool.ref_count(b) for b in (0, 1)] == [1, 1]


def test_bad_sizes():
    with pytest.raises(ValueError, match="num_blocks must be at least 1"):
        BlockPool(0)
    with pytest.raises(ValueError, match="num_blocks must not be negative"):
        BlockPool(2).allocate(-1)
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        manager(block_size=0)
    with pytest.raises(ValueError, match="pool has 3 blocks, num_blocks says 8"):
        manager(pool=BlockPool(3))


def test_a_release_of_many_blocks_is_linear():
    """Counted, not timed: quadratic work on 200,000 blocks would not end."""
    pool = BlockPool(200_000)
    pool.release(pool.allocate(200_000))
    assert pool.num_free == 200_000


# ------------------------------------------------------------------------------------- allocate


def test_allocation_is_all_or_nothing():
    kv = manager(num_blocks=3)
    prefix = kv.allocate_blocks("a", 8)
    before = snapshot(kv)
    with pytest.raises(OutOfBlocks):
        kv.allocate_blocks("b", 5)
    with pytest.raises(OutOfBlocks):
        kv.allocate_blocks("b", 17, prefix)
    with pytest.raises(OutOfBlocks):
        kv.append_tokens("a", 5)
    assert snapshot(kv) == before
    assert kv.allocate_blocks("b", 12, prefix)[:2] == prefix
    assert [kv.pool.ref_count(b) for b in prefix] == [2, 2]


def test_a_free_block_is_no_prefix():
    """Neither may it be shared, nor may it be taken as the new block beside itself."""
    kv = manager()
    before = snapshot(kv)
    for block in kv.free_block_list:
        with pytest.raises(ValueError, match="is free"):
            kv.allocate_blocks("r", 8, [block])
    assert snapshot(kv) == before


def test_bad_requests_are_named_and_change_nothing():
    kv = manager()
    kv.allocate_blocks("r", 5)
    before = snapshot(kv)
    with pytest.raises(ValueError, match="request_id 'r' already has 2 blocks"):
        kv.allocate_blocks("r", 5)
    with pytest.raises(ValueError, match="num_tokens must be at least the 8 tokens"):
        kv.allocate_blocks("s", 7, kv.block_tables["r"])
    with pytest.raises(ValueError, match="num_tokens"):
        kv.allocate_blocks("s", -1)
    with pytest.raises(ValueError, match="num_tokens must not be negative"):
        kv.append_tokens("r", -1)
    with pytest.raises(ValueError, match="child_id 'r' already"):
        kv.fork("r", "r")
    for call in (kv.free_blocks, kv.append_tokens, partial(read_kv, kv), lambda r: kv.fork(r, "t")):
        with pytest.raises(KeyError, match="request_id 'nobody' has no block table"):
            call("nobody")
    for start, end in ((-1, 2), (3, 2), (0, 6), (6, 6)):
        with pytest.raises(ValueError, match="start, end"):
            kv.slot_mapping("r", start, end)
    assert snapshot(kv) == before


# ------------------------------------------------------------------------------------- contents


@pytest.mark.parametrize("shape", [(2, 1, 3), (2, 2, 1), (2, 3), (1, 2, 3), (3, 2, 3)])
def test_write_does_not_broadcast(shape):
    kv = manager()
    kv.allocate_blocks("r", 8)
    good = torch.ones(2, 2, 3)
    with pytest.raises(ValueError, match="values must have shape"):
        write_kv(kv, "r", 0, good, torch.ones(shape))
    if shape[1:] != (2, 3):
        with pytest.raises(ValueError, match="keys must have shape"):
            write_kv(kv, "r", 0, torch.ones(shape), good)
    assert not read_kv(kv, "r")[0].any()


def test_blocks_are_views():
    kv = manager()
    other = copy.deepcopy(kv)
    assert kv.blocks is kv.blocks, "they are made once"
    kv.allocate_blocks("r", 3)
    (slot,) = kv.slot_mapping("r", 2, 3)
    kv.blocks[slot // 4].keys[slot % 4] = 7.0
    kv.blocks[slot // 4].values[slot % 4] = 8.0
    keys, values = read_kv(kv, "r")
    assert keys[2].eq(7).all() and values[2].eq(8).all() and not keys[:2].any()
    assert len(kv.blocks) == 8 and kv.blocks[0].keys.shape == (4, 2, 3)
    assert not other.blocks[slot // 4].keys.any() and not other.value_pools[0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_pools_have_the_dtype_asked_for(dtype):
    kv = manager(dtype=dtype, num_layers=2)
    assert {pool.dtype for pool in (*kv.key_pools, *kv.value_pools)} == {dtype}
    assert {tuple(pool.shape) for pool in kv.value_pools} == {(8, 4, 2, 3)}


class ManagerMachine(RuleBasedStateMachine):
    """Block tables and what they hold, against a list of numbers for each request."""

    @initialize(block_size=st.sampled_from([1, 2, 4, 16]), num_blocks=st.sampled_from([4, 40]))
    def start_empty(self, block_size, num_blocks):
        self.kv = manager(num_blocks, block_size, num_layers=2)
        self.lists: dict[int, list[int]] = {}
        self.number = self.next_id = 0

    @rule(length=st.integers(0, 18))
    def allocate(self, length):
        before = snapshot(self.kv)
        if blocks(length, self.kv) > self.kv.pool.num_free:
            with pytest.raises(OutOfBlocks):
                self.kv.allocate_blocks(self.next_id, length)
            assert snapshot(self.kv) == before
            return
        table = self.kv.allocate_blocks(self.next_id, length)
        assert table == self.kv.block_tables[self.next_id]
        assert table is not self.kv.block_tables[self.next_id]
        self.lists[self.next_id] = []
        self.write(self.next_id, length)
        self.next_id += 1

    @precondition(lambda self: self.lists)
    @rule(data=st.data(), length=st.integers(0, 6))
    def append(self, data, length):
        """A tail that is shared is copied, one that is alone or full is not."""
        request_id, before = data.draw(st.sampled_from(sorted(self.lists))), snapshot(self.kv)
        table, start = self.kv.block_tables[request_id], len(self.lists[request_id])
        copy_tail = length and start % self.kv.block_size and self.kv.pool.ref_count(table[-1]) > 1
        missing = blocks(start + length, self.kv) - len(table) + bool(copy_tail)
        if missing > self.kv.pool.num_free:
            with pytest.raises(OutOfBlocks):
                self.kv.append_tokens(request_id, length)
            assert snapshot(self.kv) == before
            return
        slots = self.kv.append_tokens(request_id, length)
        assert self.kv.pool.num_free == len(before[-1]) - missing
        assert slots == self.kv.slot_mapping(request_id, start, start + length)
        self.write(request_id, length)

    @precondition(lambda self: self.lists)
    @rule(data=st.data())
    def fork(self, data):
        parent = data.draw(st.sampled_from(sorted(self.lists)))
        self.kv.fork(parent, self.next_id)
        assert self.kv.block_tables[self.next_id] == self.kv.block_tables[parent]
        self.lists[self.next_id] = list(self.lists[parent])
        self.next_id += 1

    @precondition(lambda self: self.lists)
    @rule(data=st.data())
    def free(self, data):
        request_id = data.draw(st.sampled_from(sorted(self.lists)))
        self.kv.free_blocks(request_id)
        del self.lists[request_id]

    def write(self, request_id, length):
        """Write the next tokens, in both layers."""
        start = len(self.lists[request_id])
        for layer in range(2):
            write_kv(self.kv, request_id, start, *tokens(self.number + 1000 * layer, length), layer)
        self.lists[request_id] += range(self.number, self.number + length)
        self.number += length

    @invariant()
    def contents_are_right(self):
        for request_id, wanted in getattr(self, "lists", {}).items():
            table, size = self.kv.block_tables[request_id], self.kv.block_size
            assert len(table) == blocks(len(wanted), self.kv)
            slots = [table[i // size] * size + i % size for i in range(len(wanted))]
            assert self.kv.slot_mapping(request_id, 0, len(wanted)) == slots
            for layer in range(2):
                keys, values = read_kv(self.kv, request_id, layer)
                assert keys.shape == (len(wanted), 2, 3) and torch.equal(values, -keys)
                assert keys[:, 0, 0].tolist() == [number + 1000 * layer for number in wanted]

    @invariant()
    def recount(self):
        if hasattr(self, "kv"):
            counts = Counter(block for table in self.kv.block_tables.values() for block in table)
            numbers = range(self.kv.pool.num_blocks)
            assert [self.kv.pool.ref_count(b) for b in numbers] == [counts[b] for b in numbers]
            assert self.kv.block_tables.keys() == self.kv.lengths.keys() == self.lists.keys()


def blocks(num_tokens: int, kv: KVCacheManager) -> int:
    return len(range(0, num_tokens, kv.block_size))  # where each block begins


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = examples(60, steps=40)
