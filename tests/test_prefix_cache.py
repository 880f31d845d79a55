"""What the prefix cache refuses; `test_memory_state_machine` proves what it does."""

import pytest

from yaie.engine.kv_cache import BlockPool
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree


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
    leaf = cache.insert([1, 2, 3, 4], [block])
    cache.lock(leaf)
    free = cache.pool.free_block_list[0]
    with pytest.raises(ValueError, match=f"block {free} is free"):
        cache.insert(list(range(8)), [block, free])
    with pytest.raises(ValueError, match=f"block {free} is free"):
        cache.extend(leaf, [5, 6, 7, 8], [free])
    for outside in (-1, 3):
        with pytest.raises(ValueError, match="block must be from 0 to 2"):
            cache.insert(list(range(8)), [block, outside])
    assert (cache.num_cached, cache.pool.ref_count(block), cache.pool.num_free) == (1, 2, 2)
    assert cache.match_length(list(range(9))) == 0 and cache.match([1, 2, 3, 4, 5]).length == 4
