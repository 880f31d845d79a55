"""Blocks, their users and their contents."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from oracles import examples

from yaie.engine.kv_cache import BlockPool, KVCacheManager, OutOfBlocks, blocks_needed


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


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_blocks_needed(block_size):
    for num_tokens in range(70):
        blocks = range(0, num_tokens, block_size)  # where each block begins
        assert blocks_needed(num_tokens, block_size) == len(blocks)


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
            with pytest.raises(ValueError, match="release: block"):
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


def test_double_free():
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    pool.release(blocks)
    with pytest.raises(ValueError, match="block 0 has 0 users and was released 1 times"):
        pool.release(blocks)
    assert pool.num_free == 2


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


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("num_tokens", [0, 1, 3, 4, 5, 16, 17])
def test_a_table_has_the_blocks_that_its_tokens_need(block_size, num_tokens):
    kv = manager(num_blocks=20, block_size=block_size)
    table = kv.allocate_blocks("r", num_tokens)
    assert len(table) == len(range(0, num_tokens, block_size))
    assert table == kv.block_tables["r"] and table is not kv.block_tables["r"]
    assert kv.lengths["r"] == num_tokens
    slots = kv.slot_mapping("r", 0, num_tokens)
    assert len(set(slots)) == num_tokens
    assert slots == [
        table[i // block_size] * block_size + i % block_size for i in range(num_tokens)
    ]


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
    for call in (kv.free_blocks, kv.append_tokens, kv.gather, lambda r: kv.fork(r, "t")):
        with pytest.raises(KeyError, match="request_id 'nobody' has no block table"):
            call("nobody")
    for start, end in ((-1, 2), (3, 2), (0, 6), (6, 6)):
        with pytest.raises(ValueError, match="start, end"):
            kv.slot_mapping("r", start, end)
    assert snapshot(kv) == before


# ------------------------------------------------------------------------------------- contents


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_gather_is_what_was_written(block_size, num_layers):
    kv = manager(num_blocks=40, block_size=block_size, num_layers=num_layers)
    held = kv.allocate_blocks("x", 3 * block_size)  # so that blocks are not in order
    kv.allocate_blocks("y", 2 * block_size)
    kv.free_blocks("x")
    kv.allocate_blocks("r", 17)
    assert held
    for layer in range(num_layers):
        kv.write("r", 0, *tokens(1000 * layer, 17), layer)
        kv.write("r", 17, *tokens(0, 0), layer)
    kv.append_tokens("r", 6)
    for layer in range(num_layers):
        kv.write("r", 17, *tokens(1000 * layer + 17, 6), layer)
        keys, values = kv.gather("r", layer)
        assert torch.equal(keys, tokens(1000 * layer, 23)[0])
        assert torch.equal(values, tokens(1000 * layer, 23)[1])
    assert [t.shape for t in kv.gather("y")] == [(2 * block_size, 2, 3)] * 2


def test_nothing_to_gather():
    kv = manager()
    kv.allocate_blocks("r", 0)
    assert [t.shape for t in kv.gather("r")] == [(0, 2, 3)] * 2
    assert kv.append_tokens("r", 0) == []


@pytest.mark.parametrize("shape", [(2, 1, 3), (2, 2, 1), (2, 3), (1, 2, 3), (3, 2, 3)])
def test_write_does_not_broadcast(shape):
    kv = manager()
    kv.allocate_blocks("r", 8)
    good = torch.ones(2, 2, 3)
    with pytest.raises(ValueError, match="values must have shape"):
        kv.write("r", 0, good, torch.ones(shape))
    if shape[1:] != (2, 3):
        with pytest.raises(ValueError, match="keys must have shape"):
            kv.write("r", 0, torch.ones(shape), good)
    assert not kv.gather("r")[0].any()


def test_blocks_are_views():
    kv = manager(num_layers=2)
    (slot,) = kv.slot_mapping("r", 2, 3) if kv.allocate_blocks("r", 3) else ()
    kv.blocks[slot // 4].keys[slot % 4] = 7.0
    kv.blocks[slot // 4].values[slot % 4] = 8.0
    keys, values = kv.gather("r")
    assert keys[2].eq(7).all() and values[2].eq(8).all() and not keys[:2].any()
    assert len(kv.blocks) == 8 and kv.blocks[0].keys.shape == (4, 2, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_pools_have_the_dtype_asked_for(dtype):
    kv = manager(dtype=dtype, num_layers=2)
    assert {pool.dtype for pool in (*kv.key_pools, *kv.value_pools)} == {dtype}
    assert {tuple(pool.shape) for pool in kv.value_pools} == {(8, 4, 2, 3)}


# ------------------------------------------------------------------------------------- forks


def test_copy_on_write_of_a_partly_filled_block():
    kv = manager(num_layers=2)
    kv.allocate_blocks("a", 6)
    for layer in range(2):
        kv.write("a", 0, *tokens(10 * layer, 6), layer)
    kv.fork("a", "b")
    shared = kv.block_tables["a"][-1]
    assert kv.block_tables["b"] == kv.block_tables["a"] and kv.pool.ref_count(shared) == 2

    kv.append_tokens("b", 1)
    assert kv.block_tables["a"][-1] == shared != kv.block_tables["b"][-1]
    assert kv.block_tables["a"][0] == kv.block_tables["b"][0]
    assert kv.pool.ref_count(shared) == kv.pool.ref_count(kv.block_tables["b"][-1]) == 1
    assert kv.pool.num_free == 8 - 3
    for layer in range(2):
        kv.write("b", 6, *tokens(900, 1), layer)
    kv.append_tokens("a", 1)  # alone with its block now: no copy
    assert kv.block_tables["a"][-1] == shared
    for layer in range(2):
        kv.write("a", 6, *tokens(800, 1), layer)
        for request_id, last in (("a", 800), ("b", 900)):
            keys, values = kv.gather(request_id, layer)
            assert keys[:, 0, 0].tolist() == [*range(10 * layer, 10 * layer + 6), last]
            assert torch.equal(values, -keys)


def test_a_full_block_is_shared_without_a_copy():
    kv = manager()
    kv.allocate_blocks("a", 8)
    kv.fork("a", "b")
    kv.append_tokens("b", 1)
    assert kv.block_tables["b"][:2] == kv.block_tables["a"]
    assert kv.pool.num_free == 8 - 3


def test_a_copy_that_finds_no_block_changes_nothing():
    kv = manager(num_blocks=2)
    kv.allocate_blocks("a", 6)
    kv.fork("a", "b")
    before = snapshot(kv)
    with pytest.raises(OutOfBlocks):
        kv.append_tokens("b", 1)
    assert snapshot(kv) == before
    kv.free_blocks("a")
    assert len(kv.append_tokens("b", 1)) == 1


@given(st.sampled_from([1, 2, 4]), st.randoms(use_true_random=False))
@examples(60)
def test_forks_of_forks_keep_their_own_contents(block_size, rng: random.Random):
    """Against a plain list of numbers for each request."""
    kv = manager(num_blocks=40, block_size=block_size)
    lists: dict[int, list[int]] = {}
    number = 0
    for step in range(40):
        action = rng.choice(["new", "append", "append", "append", "fork", "fork", "free"])
        who = rng.choice(sorted(lists)) if lists else None
        try:
            if action == "new":
                length = rng.randrange(6)
                kv.allocate_blocks(step, length)
                lists[step] = list(range(number, number + length))
                kv.write(step, 0, *tokens(number, length))
                number += length
            elif who is None:
                continue
            elif action == "append":
                length = rng.randrange(4)
                slots = kv.append_tokens(who, length)
                start = len(lists[who])
                assert slots == kv.slot_mapping(who, start, start + length)
                kv.write(who, start, *tokens(number, length))
                lists[who] += range(number, number + length)
                number += length
            elif action == "fork":
                kv.fork(who, step)
                lists[step] = list(lists[who])
            else:
                kv.free_blocks(who)
                del lists[who]
        except OutOfBlocks:
            pass
        for request_id, wanted in lists.items():
            keys, values = kv.gather(request_id)
            assert keys[:, 0, 0].tolist() == wanted
            assert torch.equal(values, -keys)
        counts = Counter(block for table in kv.block_tables.values() for block in table)
        assert [kv.pool.ref_count(b) for b in range(40)] == [counts[b] for b in range(40)]
    for request_id in list(lists):
        kv.free_blocks(request_id)
    assert sorted(kv.free_block_list) == list(range(40))
    assert kv.block_tables == kv.lengths == {}


def test_the_views_of_all_blocks_are_made_once():
    kv = KVCacheManager(3, 4, 1, 2)
    assert kv.blocks is kv.blocks
    other = copy.deepcopy(kv)
    kv.blocks[1].keys[2] = 5.0
    assert (kv.key_pools[0][1, 2] == 5.0).all()
    assert (other.key_pools[0] == 0.0).all()
    other.blocks[0].values[0] = 7.0
    assert (other.value_pools[0][0, 0] == 7.0).all() and (kv.value_pools[0] == 0.0).all()
