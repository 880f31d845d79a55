"""The check of KVCacheManager.slot_mapping."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb03.common import NO_RETURN, new_manager, oracle_slots
from yaie.course.core.expect import equal, given, raises


def check_slot_mapping(KVCacheManager: Any) -> None:
    manager = scattered(KVCacheManager, [2, 0, 5], 4, 10)
    for start, end in ((5, 9), (0, 10), (4, 8), (9, 10), (3, 5)):
        compare_slots(manager, start, end)
    for at in (0, 4, 10):
        compare_slots(manager, at, at)
    refuse_bad_ranges(manager)
    generator = random.Random(0)
    for _ in range(200):
        size = generator.choice((1, 3, 4, 16))
        length = generator.randrange(1, 6 * size)
        table = generator.sample(range(12), -(-length // size))
        manager = scattered(KVCacheManager, table, size, length)
        start = generator.randrange(length)
        compare_slots(manager, start, generator.randrange(start, length + 1))


def scattered(KVCacheManager: Any, table: list[int], block_size: int, length: int) -> Any:
    """A request "a" whose blocks lie as `table` says."""
    manager = new_manager(KVCacheManager, 12, block_size)
    for block in table:
        manager.pool.free_block_list.remove(block)
    manager.pool.free_block_list.extendleft(reversed(table))
    manager.allocate_blocks("a", length)
    return manager


def compare_slots(manager: Any, start: int, end: int) -> None:
    table, size = list(manager.block_tables["a"]), manager.block_size
    call = f'slot_mapping("a", {start}, {end}) with blocks {table} of {size}'
    outside = "The table has one entry for every block_size tokens: token i is in number i // size."
    with given(call, errors={IndexError: outside}):
        got = manager.slot_mapping("a", start, end)
    positions = range(start, end)
    spanned = table[start // size : -(-end // size)]
    equal(
        got,
        oracle_slots(table, size, start, end),
        call,
        because="A slot is block * block_size + offset.",
        mistakes=[
            (None, NO_RETURN),
            (list(positions), "These are positions: look each one's block up in the table."),
            (
                [table[i // size] + i % size for i in positions],
                "A block number counts blocks: block * block_size is its first slot.",
            ),
            (
                [table[i // size] for i in positions],
                "These are the blocks; where in its block a token lies is missing.",
            ),
            (oracle_slots(table, size, start, end + 1), "`end` is exclusive."),
            (
                [table[i // size] * size + (i - start) % size for i in positions],
                "The offset counts from the block's beginning, not from `start`.",
            ),
            (
                oracle_slots(table, size, 0, end - start),
                "The tokens before `start` have slots too: these are the slots of the first ones.",
            ),
            (
                [block * size + i for block in spanned for i in range(size)],
                "These are all slots of the blocks; return those of the tokens asked for.",
            ),
            (
                [spanned[0] * size + start % size + i for i in range(len(positions))]
                if spanned
                else None,
                "After the end of a block the next slot is in the table's next block, which lies "
                "somewhere else.",
            ),
        ],
    )


def refuse_bad_ranges(manager: Any) -> None:
    for start, end, because in (
        (
            8,
            11,
            "The request has 10 tokens. Its last block has slots behind them, but nothing of the "
            "request is in them.",
        ),
        (0, 13, "The request has 10 tokens."),
        (-1, 2, "A negative index counts from the end of the table, silently."),
        (6, 5, "`start` must not be behind `end`."),
    ):
        call = f'slot_mapping("a", {start}, {end}) of a request with 10 tokens'
        raises(ValueError, lambda s=start, e=end: manager.slot_mapping("a", s, e), call, because)
    call = 'slot_mapping("nobody", 0, 1)'
    raises(KeyError, lambda: manager.slot_mapping("nobody", 0, 1), call)


def draw_slot_mapping(KVCacheManager: Any) -> Any:
    from yaie.course.viz.slots import draw_slots

    manager = scattered(KVCacheManager, [3, 0, 4], 4, 10)
    tokens = ["Why", "do", "cats", "purr", "?", "Because", "it", "feels", "good", "."]
    return draw_slots(tokens, manager.slot_mapping("a", 0, 10), num_blocks=6, block_size=4)
