"""The check of KVCacheManager.allocate_blocks."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb03.common import (
    NO_RETURN,
    accounts,
    new_manager,
    picture_of,
    snapshot,
    state_of,
    unchanged,
)
from yaie.course.core.expect import equal, fail, given, raises, short, true


def check_allocate_blocks(KVCacheManager: Any) -> None:
    for num_tokens, block_size in ((20, 16), (32, 16), (1, 16), (17, 16), (7, 1), (0, 4)):
        manager = new_manager(KVCacheManager, 8, block_size)
        allocate_fresh(manager, "a", num_tokens)
    refuse_a_second_table(KVCacheManager)
    refuse_when_full(KVCacheManager)
    share_a_prefix(KVCacheManager)
    refuse_a_bad_prefix(KVCacheManager)
    allocate_at_random(KVCacheManager)


def allocate_fresh(manager: Any, name: str, num_tokens: int) -> list[int]:
    size, free = manager.block_size, manager.pool.num_free
    call = f"allocate_blocks({name!r}, {num_tokens}) with block_size {size}"
    wrong_type = "prefix_blocks may be a list or a tuple, and is an empty tuple by default."
    with given(call, errors={TypeError: wrong_type}):
        got = manager.allocate_blocks(name, num_tokens)
    check_table(manager, name, num_tokens, got, call)
    want = -(-num_tokens // size)
    equal(
        manager.pool.num_free,
        free - want,
        f"pool.num_free after {call}",
        because=f"It was {free}, and {want} blocks are needed.",
        mistakes=[(free, "The blocks have to come from `self.pool.allocate`.")],
    )
    accounts(manager, call)
    return got


def check_table(
    manager: Any, name: str, num_tokens: int, got: Any, call: str, prefix: tuple[int, ...] = ()
) -> None:
    size = manager.block_size
    want, rest = -(-num_tokens // size), num_tokens % size
    if not isinstance(got, list):
        fail(f"{call} returned {short(got)}, expected a list of blocks. {NO_RETURN}")
    full = f"{num_tokens} tokens fill {num_tokens // size} blocks of {size}"
    equal(
        len(got),
        want,
        f"the number of blocks of {call}",
        because=f"{full}, and {rest} more lie in another." if rest else f"{full}, and no more.",
        mistakes=[
            (
                num_tokens // size,
                f"`//` rounds down, but the last {rest} tokens need a block too: round up, as "
                "`blocks_needed` does.",
            ),
            (want + len(prefix), "prefix_blocks hold the first tokens: allocate only the rest."),
            (want - len(prefix), "The table begins with prefix_blocks: only the rest is new."),
            (
                num_tokens // size + 1,
                "`// + 1` is one too many where the tokens fill their last block exactly.",
            ),
        ],
    )
    equal(
        len(set(got)),
        len(got),
        f"the number of different blocks in {got}, which {call} returned,",
        because="`self.free_block_list` is a copy: take blocks with `self.pool.allocate`.",
    )
    equal(
        manager.block_tables.get(name),
        got,
        f"block_tables[{name!r}] after {call}",
        mistakes=[(None, "The table is returned, but not recorded: nobody finds it again.")],
    )
    equal(
        manager.lengths.get(name),
        num_tokens,
        f"lengths[{name!r}] after {call}",
        because="It counts the request's tokens.",
        mistakes=[
            (None, "Without a length, nobody knows how far the last block is filled."),
            (want * size, "That counts slots; the last ones of the last block are empty."),
            (num_tokens - len(prefix) * size, "The tokens in prefix_blocks are the request's too."),
        ],
    )


def refuse_a_second_table(KVCacheManager: Any) -> None:
    manager = new_manager(KVCacheManager, 8, 4)
    table = allocate_fresh(manager, "a", 7)
    before = state_of(manager)
    table.append(99)
    true(
        99 not in manager.block_tables["a"],
        'The list that allocate_blocks("a", 7) returned is block_tables["a"] itself: a caller who '
        "changes it changes the table. Return a copy.",
    )
    call = 'allocate_blocks("a", 5), when "a" has blocks [0, 1] already,'
    raises(
        ValueError,
        lambda: manager.allocate_blocks("a", 5),
        call,
        because="A new table in place of the old one leaks the old blocks: nobody could release "
        "them any more. And whoever still reads through the old table must not lose it.",
    )
    unchanged(manager, before, call, "A call that is refused changes nothing.")


def refuse_when_full(KVCacheManager: Any) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    manager = new_manager(KVCacheManager, 4, 4)
    allocate_fresh(manager, "a", 8)
    before = state_of(manager)
    call = 'allocate_blocks("b", 12), which needs 3 blocks when 2 are free,'
    raises(OutOfBlocks, lambda: manager.allocate_blocks("b", 12), call)
    equal(
        manager.pool.num_free,
        2,
        f"pool.num_free after {call}",
        because="It failed halfway and kept what it had taken. Ask the pool for all blocks at "
        "once: it gives all of them or none.",
    )
    true(
        "b" not in manager.block_tables and "b" not in manager.lengths,
        f'{call} left an entry for "b" behind: record a request once it has its blocks.',
    )
    unchanged(manager, before, call, "A call that fails changes nothing.")


def share_a_prefix(KVCacheManager: Any) -> None:
    manager = new_manager(KVCacheManager, 6, 4)
    first = allocate_fresh(manager, "a", 9)
    prefix, before = first[:2], snapshot(manager)
    call = f'allocate_blocks("b", 11, prefix_blocks={prefix})'
    with given(call):
        got = manager.allocate_blocks("b", 11, prefix)
    check_table(manager, "b", 11, got, call, prefix=(0, 1))
    equal(prefix, first[:2], f"{call} changed its argument: prefix_blocks")
    equal(got[:2], prefix, f"the first blocks of {call}", because="They hold the first tokens.")
    for block in prefix:
        equal(
            manager.pool.ref_count(block),
            2,
            f"the users of block {block} after {call}",
            because='"a" and "b" both have it in their tables.',
            mistakes=[
                (
                    1,
                    'Only "a" counts as its user. When "a" ends, the block is free, and the next '
                    'request writes over what "b" still reads. Tell the pool: `share`.',
                )
            ],
        )
    accounts(manager, call)
    true(got[2] not in first, f"{call} gave out block {got[2]}, which is a's.",
         picture_of(manager, before))  # fmt: skip
    refuse_when_full_behind_a_prefix(manager, tuple(prefix))


def refuse_when_full_behind_a_prefix(manager: Any, prefix: tuple[int, ...]) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    before = state_of(manager)
    call = f'allocate_blocks("c", 30, prefix_blocks={prefix}), which needs 6 new blocks,'
    raises(OutOfBlocks, lambda: manager.allocate_blocks("c", 30, prefix), call)
    equal(
        [manager.pool.ref_count(block) for block in prefix],
        [2, 2],
        f"the users of blocks {prefix} after {call}",
        because="The prefix stays shared with a request that does not exist, so it is never free "
        "again. If the allocation fails, release what was shared.",
    )
    unchanged(manager, before, call, "A call that fails changes nothing.")


def refuse_a_bad_prefix(KVCacheManager: Any) -> None:
    manager = new_manager(KVCacheManager, 6, 4)
    prefix = allocate_fresh(manager, "a", 8)
    before = state_of(manager)
    call = f'allocate_blocks("b", 7, prefix_blocks={prefix})'
    raises(
        ValueError,
        lambda: manager.allocate_blocks("b", 7, prefix),
        call,
        because="The two blocks hold 8 tokens, more than the request's 7.",
    )
    unchanged(manager, before, call, "A call that is refused changes nothing.")
    first, last = manager.free_block_list[0], manager.free_block_list[-1]
    call = f'allocate_blocks("b", 8, prefix_blocks=[{first}]), when block {first} is free,'
    raises(
        ValueError,
        lambda: manager.allocate_blocks("b", 8, [first]),
        call,
        because=f"Was the new block allocated first? Then it is block {first} itself, `share` "
        "finds it in use, and the table holds it twice. Share the prefix before you allocate.",
    )
    unchanged(manager, before, call, "A call that is refused changes nothing.")
    call = f'allocate_blocks("b", 8, prefix_blocks=[{last}]), when block {last} is free,'
    raises(ValueError, lambda: manager.allocate_blocks("b", 8, [last]), call)
    because = "The call was refused, but kept a new block. Share the prefix before you allocate."
    unchanged(manager, before, call, because)


def allocate_at_random(KVCacheManager: Any) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    generator = random.Random(0)
    for block_size in (1, 3, 4):
        manager = new_manager(KVCacheManager, 12, block_size)
        for step in range(120):
            name, num_tokens = f"r{step}", generator.randrange(5 * block_size)
            living = list(manager.block_tables)
            if living and generator.random() < 0.4:
                ended = generator.choice(living)
                manager.free_blocks(ended)
                continue
            prefix: list[int] = []
            if living and generator.random() < 0.5:
                parent = generator.choice(living)
                full = min(manager.lengths[parent], num_tokens) // block_size
                prefix = manager.block_tables[parent][:full]
            call = f"step {step}, allocate_blocks({name!r}, {num_tokens}, {prefix})"
            want = -(-num_tokens // block_size) - len(prefix)
            if want > manager.pool.num_free:
                before = state_of(manager)
                try:
                    manager.allocate_blocks(name, num_tokens, prefix)
                except OutOfBlocks:
                    unchanged(manager, before, call, "A call that fails changes nothing.")
                else:
                    fail(f"{call} should raise OutOfBlocks: {want} new blocks are needed")
                continue
            with given(call):
                got = manager.allocate_blocks(name, num_tokens, prefix)
            check_table(manager, name, num_tokens, got, call, tuple(prefix))
            accounts(manager, call)


def draw_allocate_blocks(KVCacheManager: Any) -> Any:
    from yaie.course.viz import draw_blocks, film_strip

    manager = new_manager(KVCacheManager, 12, 16)
    states, titles = [snapshot(manager)], ["empty"]
    for name, num_tokens in (("ada", 20), ("ben", 33), ("cleo", 64)):
        manager.allocate_blocks(name, num_tokens)
        states.append(snapshot(manager))
        titles.append(f"{name}: {num_tokens} tokens")
    manager.free_blocks("ben")
    states.append(snapshot(manager))
    titles.append("ben ends")
    manager.allocate_blocks("dora", 70, manager.block_tables["cleo"][:2])
    states.append(snapshot(manager))
    titles.append("dora: 70, cleo's first 32 shared")
    return film_strip(states, draw_blocks, titles, frames=[1, 3, 4, 5])
