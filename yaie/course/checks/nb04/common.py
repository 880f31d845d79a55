"""What the checks of notebook 04 set their scenes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SIZE = 2  # tokens a block
PROMPT = [1, 2, 3, 4, 5, 6]  # three full blocks


def new_cache(RadixCache: Any, num_blocks: int = 12) -> Any:
    """The learner's cache over a pool of its own, with nothing in it."""
    from yaie.engine.kv_cache import BlockPool

    return RadixCache(BlockPool(num_blocks), SIZE)


def keep(cache: Any, tokens: list[int], namespace: str = "") -> list[int]:
    """Let a request compute `tokens` and end; the cache keeps its full blocks, here returned."""
    table = cache.pool.allocate(-(-len(tokens) // SIZE))
    cache.insert(tokens, table, namespace)
    cache.pool.release(table)
    return table[: len(tokens) // SIZE]


def named(cache: Any) -> list[int]:
    """The blocks that the tree names, in order of their numbers."""
    blocks: list[int] = []
    stack = list(cache.tree.roots.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        blocks.extend(node.values)
    return sorted(blocks)


def depth(node: Any) -> int:
    """The tokens from the root down to `node`."""
    tokens = 0
    while node is not None:
        tokens += len(node.key)
        node = node.parent
    return tokens


def counts(cache: Any, blocks: Sequence[int]) -> list[int]:
    """How many users each of `blocks` has."""
    return [cache.pool.ref_count(block) for block in blocks]


def counts_of(blocks: Sequence[int]) -> str:
    """What `counts` counts, in words."""
    return f"pool.ref_count of blocks {list(blocks)}"
