"""A prefix cache: its tree, and below it the blocks that the tree names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.blocks import PoolState, cached_blocks, draw_blocks, snapshot_pool
from yaie.course.viz.tree import draw_tree
from yaie.course.viz.tree_state import TreeState, snapshot_tree


@dataclass(frozen=True)
class CacheState:
    """The tree and the pool of a prefix cache at the same moment."""

    tree: TreeState
    pool: PoolState


def snapshot_cache(
    manager: Any,
    cache: Any,
    decode: Callable[[list[int]], str] | None = None,
    matched: Sequence[int] = (),
) -> CacheState:
    """Record a `KVCacheManager` and the `RadixCache` over its pool.

    Args:
        decode: turns token ids into the text of a node.
        matched: tokens that a match has just found.
    """
    tree = snapshot_tree(cache.tree, decode, matched=matched)
    return CacheState(tree, snapshot_pool(manager, cached=cached_blocks(cache.tree)))


def draw_cache(
    state: CacheState,
    previous: CacheState | None = None,
    width: float = style.WIDTH,
    at: style.Place | None = None,
) -> Figure:
    """Draw the tree, and below it the block tables and the pool."""
    before = (None, None) if previous is None else (previous.tree, previous.pool)

    def tree(at: style.Place | None = None) -> Figure:
        return draw_tree(state.tree, before[0], width, at=at)

    def pool(at: style.Place | None = None) -> Figure:
        return draw_blocks(state.pool, before[1], width, at=at)

    (tree_width, tree_height), (pool_width, pool_height) = (
        panel().get_size_inches() for panel in (tree, pool)
    )
    page = style.Page(max(tree_width, pool_width), tree_height + pool_height, at)
    x, y = (at.x, at.y) if at else (0.0, 0.0)
    tree(at=style.Place(page.figure, x, y))
    pool(at=style.Place(page.figure, x, y + tree_height))
    return page.figure
