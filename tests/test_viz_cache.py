"""The picture of a prefix cache: the tree and the blocks that it names."""

from __future__ import annotations

from yaie.course.viz import draw_cache, film_strip, snapshot_cache
from yaie.course.viz.tree_state import compare
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.prefix_cache import RadixCache


def serve(manager: KVCacheManager, cache: RadixCache, name: str, tokens: list[int]) -> None:
    found = cache.match(tokens)
    manager.allocate_blocks(name, len(tokens), found.values)
    cache.insert(tokens, manager.block_tables[name])
    manager.free_blocks(name)


def scene() -> tuple[KVCacheManager, RadixCache]:
    """Two prompts that part in the middle of their second block of 4."""
    manager = KVCacheManager(8, 4, num_heads=1, head_dim=1)
    cache = RadixCache(manager.pool, 4)
    serve(manager, cache, "a", [1, 2, 3, 4, 5, 6, 7, 8])
    serve(manager, cache, "b", [1, 2, 3, 4, 5, 6, 9, 9])
    return manager, cache


def test_a_block_that_only_begins_alike_is_neither_matched_nor_kept() -> None:
    manager, cache = scene()
    prompt = [1, 2, 3, 4, 5, 6, 9, 9, 9]
    found = cache.match(prompt)
    assert found.length == 8
    state = snapshot_cache(manager, cache, matched=prompt[:8])
    matched = compare(state.tree, None)[1].matched
    assert [state.tree.nodes[i].key for i in matched] == [(), (1, 2, 3, 4), (5, 6, 9, 9)]

    cache.evict(1)
    after = snapshot_cache(manager, cache)
    full, marks = compare(after.tree, state.tree)
    [ghost] = [full.nodes[i] for i, tag in marks.tags.items() if tag == "evicted"]
    assert (ghost.key, full.nodes[ghost.parent].key) == ((5, 6, 7, 8), (1, 2, 3, 4))
    assert not ghost.is_rest


def test_cache_is_as_high_as_its_two_pictures_and_a_panel_of_a_strip() -> None:
    manager, cache = scene()
    states = [snapshot_cache(manager, cache)]
    cache.evict(2)
    states.append(snapshot_cache(manager, cache))
    alone = draw_cache(states[0])
    strip = film_strip(states, draw_cache, ["before", "after"])
    assert strip.get_figheight() > alone.get_figheight()
    assert len(alone.axes) == 3  # the page, the tree, the pool
    assert len(snapshot_cache(manager, cache).pool.cached) == cache.num_cached == 1
