"""The prefix cache: who uses which block, and what a match may give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import check_tree, contents, examples, prompts

from yaie.engine.kv_cache import BlockPool, KVCacheManager
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree


def fill(cache: RadixCache, tokens: list[int], namespace: str = "") -> list[int]:
    """What a request does that computes `tokens` and ends; returns its blocks."""
    blocks = cache.pool.allocate(-(-len(tokens) // cache.block_size))
    cache.insert(tokens, blocks, namespace)
    cache.pool.release(blocks)
    return blocks


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("held", [0, 1, 15, 16, 17, 32])
@pytest.mark.parametrize("asked", [0, 1, 2, 15, 16, 17, 32, 33, 40])
def test_a_full_hit_leaves_one_token(block_size, held, asked):
    cache = RadixCache(BlockPool(64), block_size)
    blocks = fill(cache, list(range(held)))
    found = cache.match(list(range(asked)))
    whole = [n for n in range(0, min(held, asked - 1) + 1, block_size)]
    assert found.length == (whole[-1] if whole else 0)
    assert found.length < max(asked, 1)
    assert cache.match_length(list(range(asked))) == found.length
    assert found.values == blocks[: found.length // block_size]


def test_an_unaligned_tail_is_not_kept():
    cache = RadixCache(BlockPool(8), 4)
    blocks = fill(cache, list(range(10)))
    assert cache.num_cached == 2
    assert [cache.pool.ref_count(b) for b in blocks] == [1, 1, 0]
    assert cache.num_available == 8


def test_namespaces_share_nothing():
    cache = RadixCache(BlockPool(8), 4)
    ours, theirs = fill(cache, list(range(8)), "a"), fill(cache, list(range(8)), "b")
    assert not set(ours) & set(theirs)
    assert cache.match(list(range(9)), "a").values == ours
    assert cache.match(list(range(9)), "b").values == theirs
    assert cache.match(list(range(9))).values == []


def test_a_duplicate_stays_its_owners():
    cache = RadixCache(BlockPool(8), 4)
    first = fill(cache, list(range(8)))
    second = cache.pool.allocate(3)
    node = cache.insert([*range(8), 50, 51, 52, 53], second)
    assert cache.match([*range(8), 50, 51, 52, 53, 0]).values == [*first, second[2]]
    assert [cache.pool.ref_count(b) for b in second] == [1, 1, 2]
    cache.lock(node)
    cache.pool.release(second)
    assert cache.pool.num_free == 8 - 3
    assert cache.evict(9) == 0
    cache.unlock(node)
    assert cache.evict(9) == 3
    assert cache.pool.num_free == 8


def test_inserting_again_takes_no_second_reference():
    cache = RadixCache(BlockPool(4), 4)
    blocks = cache.pool.allocate(2)
    for length in (3, 4, 7, 8, 8):  # a prompt computed in chunks
        cache.insert(list(range(length)), blocks)
    assert [cache.pool.ref_count(b) for b in blocks] == [2, 2]


def test_a_block_used_again_after_eviction_is_never_found_under_its_old_tokens():
    cache = RadixCache(BlockPool(2), 4)
    fill(cache, [1] * 8)
    for token in range(2, 9):
        assert cache.make_room(2)
        blocks = fill(cache, [token] * 8)
        for old in range(1, token):
            assert cache.match([old] * 9).values == []
        assert cache.match([token] * 9).values == blocks
        check_tree(cache.tree)


def test_drop_takes_what_was_cached_before_unless_others_need_it():
    cache = RadixCache(BlockPool(8), 4)
    fill(cache, [1] * 8)
    fill(cache, [1] * 8 + [2] * 8)  # begins with what was found
    cache.drop(cache.tree.match([1] * 8 + [2] * 8).node)
    assert cache.num_cached == 0 and cache.pool.num_free == 8

    fill(cache, [1] * 8 + [2] * 8)
    fill(cache, [1] * 4 + [3] * 4)
    cache.lock(cache.match([1] * 9).node)
    cache.drop(cache.tree.match([1] * 8 + [2] * 8).node)
    assert cache.match([1] * 16 + [2]).length == 8
    cache.drop(cache.tree.match([1] * 4 + [3] * 4).node)
    assert cache.match([1] * 4 + [3] * 5).length == 4
    check_tree(cache.tree)


def test_make_room_is_all_or_nothing():
    cache = RadixCache(BlockPool(4), 4)
    fill(cache, [1] * 8)
    fill(cache, [2] * 4)
    found = cache.match([1] * 9)
    cache.lock(found.node)
    assert cache.num_available == 2
    assert not cache.make_room(3)
    assert cache.num_cached == 3 and cache.pool.num_free == 1
    assert cache.make_room(0) and cache.make_room(1) and cache.num_cached == 3
    assert cache.make_room(2)
    assert cache.pool.num_free == 2 and cache.match([1] * 9).values == found.values


def test_a_request_that_takes_the_cached_prefix_survives_pressure():
    """Match, lock, make room, allocate, in the scheduler's order: nobody takes the prefix."""
    cache = RadixCache(BlockPool(4), 4)
    kv = KVCacheManager(4, 4, 1, 2, pool=cache.pool)
    old = fill(cache, [1] * 8)
    fill(cache, [2] * 8)
    found = cache.match([1] * 12)
    cache.lock(found.node)
    assert cache.make_room(1)
    table = kv.allocate_blocks("r", 12, found.values)
    assert table[:2] == old == found.values
    assert table[2] not in old
    assert [cache.pool.ref_count(b) for b in old] == [2, 2]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="tree has block_size 2, the cache has 4"):
        RadixCache(BlockPool(2), 4, RadixTree(2))
    cache = RadixCache(BlockPool(2), 4)
    with pytest.raises(ValueError, match="blocks: 1 blocks do not hold the 2 full blocks"):
        cache.insert(list(range(8)), cache.pool.allocate(1))
    assert cache.num_cached == 0


def test_a_free_block_cannot_be_cached():
    cache = RadixCache(BlockPool(3), 4)
    (block,) = cache.pool.allocate(1)
    free = cache.pool.free_block_list[0]
    with pytest.raises(ValueError, match=f"block {free} is free"):
        cache.insert(list(range(8)), [block, free])


@given(
    st.sampled_from([1, 4, 16]).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(prompts(n), max_size=12))
    )
)
@examples(100)
def test_the_cache_owns_each_of_its_blocks_once(drawn):
    block_size, inserted = drawn
    cache = RadixCache(BlockPool(200), block_size)
    for tokens in inserted:
        fill(cache, tokens)
    held = contents(cache.tree)
    distinct = {tuple(t[:n]) for t in inserted for n in range(block_size, len(t) + 1, block_size)}
    assert {tokens for _, tokens in held} == distinct
    assert len(set(held.values())) == len(held) == cache.num_cached
    counts = [cache.pool.ref_count(block) for block in range(200)]
    assert counts == [int(block in held.values()) for block in range(200)]
    assert cache.num_available == 200
    assert cache.evict(200) == len(distinct)
    assert cache.pool.num_free == 200
