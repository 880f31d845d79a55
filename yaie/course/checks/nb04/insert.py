"""The check of 04.2: `RadixCache.insert`."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb04.common import PROMPT, SIZE, counts, counts_of, depth, named, new_cache
from yaie.course.checks.nb04.trace import check_trace
from yaie.course.core.expect import equal, given, raises, true

TORN = (
    "The last block is not full: the request goes on writing into it. The tree keeps full blocks "
    "only."
)
NO_REFERENCE = (
    "The tree names blocks that the cache is no user of. They will be free as soon as the request "
    "releases its table, and the next match hands out free blocks."
)
LOST_TAIL = (
    "Block 2 is not full, so the tree does not name it, and nobody would ever release the "
    "reference taken here."
)
FREED = (
    "The duplicates were released, but the second request's table still points at them: it goes "
    "on reading blocks that the next request overwrites."
)
LEAKED = (
    "The cache counts itself as a user of duplicates that the tree does not name, so nobody will "
    "ever release them. New is what the tree did not have, not what has one user."
)
COUNTED_AGAIN = (
    "Block 1 was counted again, though the tree had it. `match` leaves a token over, so it does "
    "not say what was there; `self.tree.insert` does."
)

NOT_COUNTED = (
    "Block 2 is new in the tree and was not counted. Is `length`, which counts tokens, used where "
    "blocks are counted?"
)


def check_insert(RadixCache: Any) -> None:
    _check_first(RadixCache)
    _check_short(RadixCache)
    _check_growth(RadixCache)
    _check_duplicates(RadixCache)
    _check_branch(RadixCache)
    _check_namespace(RadixCache)
    _check_too_few_blocks(RadixCache)
    check_trace(RadixCache, seed=2)


def _insert(cache: Any, tokens: list[int], table: list[int], scene: str = "") -> Any:
    call = f"insert({tokens}, {table}) in blocks of {SIZE}{scene}"
    blocks = list(table)
    in_use = "Every block here is in use, and there are enough of them."
    with given(call, errors={ValueError: in_use}):
        node = cache.insert(tokens, blocks)
    equal(blocks, table, f"{call} changed its argument: blocks")
    true(
        hasattr(node, "lock_count"),
        f"{call} returned {node!r}; the node at which the tokens end is wanted. `self.tree.insert` "
        "returns it first, and then how many tokens were there before.",
    )
    full = len(tokens) // SIZE * SIZE
    equal(
        depth(node),
        full,
        f"{call}: the returned node's depth in tokens",
        because="It is the node to lock, and the lock has to protect all full blocks.",
        mistakes=[(full + SIZE, TORN)],
    )
    return node


def _check_first(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    tokens, table = PROMPT[:5], cache.pool.allocate(3)
    _insert(cache, tokens, table)
    call = f"insert({tokens}, {table}) in blocks of {SIZE}"
    equal(named(cache), table[:2], f"{call}: the list of blocks that the tree names", because=TORN)
    equal(
        counts(cache, table),
        [2, 2, 1],
        f"{call}: {counts_of(table)}",
        because="The cache becomes one more user of each full block.",
        mistakes=[([1, 1, 1], NO_REFERENCE), ([2, 2, 2], LOST_TAIL)],
    )
    cache.pool.release(table)
    equal(counts(cache, table), [1, 1, 0], f"{call}, then release({table}): {counts_of(table)}")


def _check_short(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    table = cache.pool.allocate(1)
    node = _insert(cache, [1], table)
    true(
        node.parent is None and named(cache) == [] and counts(cache, table) == [1],
        f"insert([1], {table}): one token fills no block of {SIZE}, so nothing is kept, and the "
        "node to lock is the root.",
    )


def _check_growth(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    table = cache.pool.allocate(4)
    _insert(cache, PROMPT[:4], table[:2])
    scene = f" after insert({PROMPT[:4]}, {table[:2]})"
    for tokens, want in ((PROMPT[:4], [2, 2, 1, 1]), ([*PROMPT, 7], [2, 2, 2, 1])):
        _insert(cache, tokens, table, scene)
        equal(
            counts(cache, table),
            want,
            f"insert({tokens}, {table}){scene}: {counts_of(table)}",
            because="The cache is one user of each of its blocks, however often it is told of "
            "them: share only those it had not.",
            mistakes=[([2, 3, 1, 1], COUNTED_AGAIN), ([2, 2, 1, 1], NOT_COUNTED)],
        )


def _check_duplicates(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    tokens = PROMPT[:4]
    first, second = cache.pool.allocate(2), cache.pool.allocate(2)
    _insert(cache, tokens, first)
    scene = f" after insert({tokens}, {first}) by another request of the same step"
    _insert(cache, tokens, second, scene)
    call = f"insert({tokens}, {second}){scene}"
    equal(
        named(cache),
        first,
        f"{call}: the list of blocks that the tree names",
        because="The tree has blocks for these tokens already, and keeps them: somebody may have "
        "matched them.",
    )
    equal(
        counts(cache, second),
        [1, 1],
        f"{call}: {counts_of(second)}",
        because="The second request is their only user.",
        mistakes=[([0, 0], FREED), ([2, 2], LEAKED)],
    )
    equal(counts(cache, first), [2, 2], f"{call}: {counts_of(first)}")
    cache.pool.release([*first, *second])
    equal(
        counts(cache, [*first, *second]),
        [1, 1, 0, 0],
        f"{call}, then both requests release their tables: {counts_of([*first, *second])}",
    )


def _check_branch(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    first = cache.pool.allocate(3)
    _insert(cache, PROMPT, first)
    other = [*PROMPT[:2], 7, 8, 9]
    table = [first[0], *cache.pool.allocate(2)]
    cache.pool.share(first[:1])
    scene = f" after insert({PROMPT}, {first}); block {first[0]} was matched"
    _insert(cache, other, table, scene)
    blocks = [*first, *table[1:]]
    equal(
        counts(cache, blocks),
        [3, 2, 2, 2, 1],
        f"insert({other}, {table}){scene}: {counts_of(blocks)}",
        because="New in the tree is the second block of the table alone.",
    )


def _check_namespace(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    table = cache.pool.allocate(1)
    call = f'insert([1, 2], {table}, "adapter-1")'
    with given(call):
        cache.insert([1, 2], table, "adapter-1")
    equal(
        cache.tree.match([1, 2], "").length,
        0,
        f'{call}; then the length of [1, 2] in the tree in namespace ""',
        because="The blocks were put where requests of every other namespace find them.",
    )
    equal(
        cache.tree.match([1, 2], "adapter-1").length,
        2,
        f'{call}; then the length of [1, 2] in the tree in namespace "adapter-1"',
    )


def _check_too_few_blocks(RadixCache: Any) -> None:
    cache = new_cache(RadixCache)
    table = cache.pool.allocate(2)
    call = f"insert({PROMPT}, {table})"
    because = f"{len(PROMPT)} tokens have 3 full blocks of {SIZE}, and only 2 blocks came."
    raises(ValueError, lambda: cache.insert(PROMPT, table), call, because)
    equal(
        (named(cache), counts(cache, table)),
        ([], [1, 1]),
        f"{call} raised; then (blocks that the tree names, {counts_of(table)})",
        because="A call that fails must leave everything as it was.",
    )
