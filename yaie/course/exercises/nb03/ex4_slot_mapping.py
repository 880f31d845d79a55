"""03.4: from a token's position to its slot in the pool."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb03.books import new_manager, slots

BEYOND = "The request has 10 tokens; the slots of its last block after them hold nothing of it."


def cases() -> Iterator[Case]:
    for start, end in ((5, 9), (0, 10), (4, 8), (9, 10), (3, 5), (0, 0), (4, 4), (10, 10)):
        yield case([2, 0, 5], 4, 10, start, end)
    bad = ((8, 11, BEYOND), (0, 13, BEYOND), (-1, 2, "There are no tokens before the first."),
           (6, 5, "`start` must not be after `end`."))  # fmt: skip
    for start, end, because in bad:
        yield case([2, 0, 5], 4, 10, start, end, because=because)
    for end in (1, 0):
        yield case([2, 0, 5], 4, 10, 0, end, request="unknown")
    generator = random.Random(0)
    for _ in range(200):
        size = generator.choice((1, 3, 4, 16))
        length = generator.randrange(1, 6 * size)
        table = generator.sample(range(12), -(-length // size))
        start = generator.randrange(length)
        yield case(table, size, length, start, generator.randrange(start, length + 1))


def case(table: list[int], size: int, length: int, start: int, end: int, **more: str) -> Case:
    data = {"request": "a", "because": "", **more}
    name = f"{length} tokens of 'a' in blocks {table} of {size}"
    return Case(name, table=table, size=size, length=length, start=start, end=end, **data)


def observe(KVCacheManager: type, case: Case, see: Observer) -> None:
    manager = scattered(KVCacheManager, case.table, case.size, case.length)
    arguments = case.request, case.start, case.end
    call = f"slot_mapping{arguments}"
    if case.request != "a":
        because = f"{case.request!r} has no block table."
        see.raises(call, KeyError, lambda: manager.slot_mapping(*arguments), because)
    elif case.because:
        see.raises(call, ValueError, lambda: manager.slot_mapping(*arguments), case.because)
    else:
        with see.call(call):
            got = manager.slot_mapping(*arguments)
        see.kind(call, got, (list, tuple), "a list of ints")
        want = slots(case.table, case.size, case.start, case.end)
        see.equal(call, got, want, "A slot is block * block_size + offset.")


def scattered(KVCacheManager: Any, table: list[int], block_size: int, length: int) -> Any:
    """A request "a" whose blocks lie as `table` says."""
    manager = new_manager(KVCacheManager, 12, block_size)
    for block in table:
        manager.pool.free_block_list.remove(block)
    manager.pool.free_block_list.extendleft(reversed(table))
    manager.allocate_blocks("a", length)
    return manager


def draw(KVCacheManager: Any) -> Any:
    from yaie.course.viz.paged import draw_slots

    manager = scattered(KVCacheManager, [3, 0, 4], 4, 10)
    tokens = ["Why", "do", "cats", "purr", "?", "Because", "it", "feels", "good", "."]
    return draw_slots(tokens, manager.slot_mapping("a", 0, 10), num_blocks=6, block_size=4)
