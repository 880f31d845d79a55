"""The check of 04.3: `RadixCache.evict` and `RadixCache.make_room`."""

from __future__ import annotations

from typing import Any

from yaie.course.checks.nb04.common import SIZE, counts, counts_of, keep, named, new_cache
from yaie.course.checks.nb04.trace import check_trace
from yaie.course.core.expect import equal, fail, given

OLD, MIDDLE, NEW = [1, 2, 3, 4], [5, 6], [7, 8]
FULL = f"on a cache that holds {OLD}, {MIDDLE} and {NEW}, oldest first, in blocks of {SIZE}"

STALE = (
    "Blocks were given back and the tree still names them. The next match hands out blocks that "
    "hold somebody else's tokens."
)
LOST = "The tree forgot them and the pool was not told: they are neither cached nor free, for ever."
BY_HAND = (
    "They went to the free list behind the pool's back, and still count a user: `release` does "
    "both."
)


def check_evict(RadixCache: Any) -> None:
    for number in (1, 2, 3, 4, 9, 0):
        _check_evict(RadixCache, number)
    _check_locked(RadixCache)
    for number in (0, 1, 2, 5):
        _check_make_room(RadixCache, number)
    _check_no_room(RadixCache, 6, lock=False)
    _check_no_room(RadixCache, 4, lock=True)
    check_trace(RadixCache, seed=3)


def _full(RadixCache: Any) -> tuple[Any, list[int]]:
    """A cache that holds four of five blocks: two of OLD, one of MIDDLE, one of NEW."""
    cache = new_cache(RadixCache, num_blocks=5)
    return cache, [block for tokens in (OLD, MIDDLE, NEW) for block in keep(cache, tokens)]


def _check_evict(RadixCache: Any, number: int) -> None:
    cache, blocks = _full(RadixCache)
    call = f"evict({number}) {FULL}"
    gone = [blocks[1], blocks[0], *blocks[2:]][:number]
    with given(call):
        got = cache.evict(number)
    were_freed = cache.pool.num_free > 1
    equal(
        named(cache),
        sorted(set(blocks) - set(gone)),
        f"{call}: the list of blocks that the tree still names",
        because="What was used longest ago goes first, and of one sequence the last block first.",
        mistakes=[(blocks, STALE if were_freed else "Nothing was evicted.")],
    )
    equal(
        counts(cache, gone),
        [0] * len(gone),
        f"{call}: {counts_of(gone)}, which left the tree,",
        because="The cache was their only user and has to release them.",
        mistakes=[([1] * len(gone), BY_HAND if were_freed else LOST)],
    )
    equal(cache.pool.num_free, 1 + len(gone), f"{call}: num_free")
    mistakes = [
        (gone, "The caller wants to know how many blocks, not which."),
        (number, "So many were asked for. The caller wants to know how many there were."),
    ]
    equal(got, len(gone), f"{call}: what it returned", mistakes=mistakes)


def _check_locked(RadixCache: Any) -> None:
    cache, blocks = _full(RadixCache)
    cache.lock(cache.tree.match(OLD).node)
    call = f"evict(4) {FULL}; {OLD} is locked"
    with given(call):
        got = cache.evict(4)
    equal(
        named(cache),
        blocks[:2],
        f"{call}: the list of blocks that the tree still names",
        because="What is locked stays: a request has it in its table.",
    )
    equal(got, 2, f"{call}: what it returned", because="Two blocks were given up, not four.")


def _check_make_room(RadixCache: Any, number: int) -> None:
    cache, blocks = _full(RadixCache)
    call = f"make_room({number}) with 1 free block, {FULL}"
    with given(call):
        got = cache.make_room(number)
    needed = max(0, number - 1)
    equal(
        len(blocks) - len(named(cache)),
        needed,
        f"{call}: the number of evicted blocks",
        because="Free blocks count: only what is missing is evicted, since each evicted block may "
        "have to be computed again.",
    )
    equal(cache.pool.num_free, 1 + needed, f"{call}: num_free")
    if got is not True:
        fail(f"{call} returned {got!r}, expected True: so many blocks are free now.")


def _check_no_room(RadixCache: Any, number: int, lock: bool) -> None:
    cache, blocks = _full(RadixCache)
    call = f"make_room({number}) with 1 free block, {FULL}"
    why = "the pool has 5 blocks"
    if lock:
        cache.lock(cache.tree.match(OLD).node)
        call += f"; {OLD} is locked"
        why = "what is locked cannot be evicted, so there are 2 blocks beside the free one"
    with given(call):
        got = cache.make_room(number)
    if got is not False:
        fail(f"{call} returned {got!r}, expected False: {why}.")
    equal(
        named(cache),
        blocks,
        f"{call}: the list of blocks that the tree still names",
        because=f"It returned False, since {why}: the request has to wait, and what was evicted "
        "for it is lost for everybody. Ask `self.num_available` first.",
    )
