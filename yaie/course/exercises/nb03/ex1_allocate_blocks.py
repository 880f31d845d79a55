"""03.1: the block table of a new request, and what is left behind when it cannot have one."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb03.books import FAILED, Books, after, film, new_manager, picture_of
from yaie.engine.kv_cache import OutOfBlocks

# Steps are ("new", name, tokens), ("new", name, tokens, parent, blocks of the parent to share)
# and ("end", name). The parent "free" stands for the free block with that index, "a and free" for
# the first block of a and that one.


def cases() -> Iterator[Case]:
    for num_tokens, block_size in ((20, 16), (32, 16), (1, 16), (17, 16), (7, 1), (0, 4)):
        yield case(8, block_size, ("new", "a", num_tokens))
    yield case(8, 4, ("new", "a", 7), ("new", "a", 5))
    yield case(8, 4, ("new", "a", 0), ("new", "a", 5))
    yield case(4, 4, ("new", "a", 8), ("new", "b", 12))
    yield case(6, 4, ("new", "a", 9), ("new", "b", 11, "a", 2), ("new", "c", 30, "a", 2))
    for bad in (("new", "b", 7, "a", 2), ("new", "b", 8, "free", 0), ("new", "b", 8, "free", -1)):
        yield case(6, 4, ("new", "a", 8), bad)
    yield case(6, 4, ("new", "a", 8), ("new", "b", 9, "a and free", 0))
    generator = random.Random(0)
    for block_size in (1, 3, 4):
        yield case(12, block_size, *random_steps(generator, 12, block_size))


def case(num_blocks: int, block_size: int, *steps: tuple) -> Case:
    return Case(in_words, trace=steps, num_blocks=num_blocks, block_size=block_size)


def random_steps(generator: random.Random, num_blocks: int, block_size: int) -> Iterator[tuple]:
    books = Books(num_blocks, block_size)
    for number in range(120):
        name, num_tokens = f"r{number}", generator.randrange(5 * block_size)
        living = list(books.tables)
        if living and generator.random() < 0.4:
            ended = generator.choice(living)
            books.forget(ended)
            yield "end", ended
            continue
        step, prefix = ("new", name, num_tokens), []
        if living and generator.random() < 0.5:
            parent = generator.choice(living)
            count = min(books.lengths[parent], num_tokens) // block_size
            step, prefix = (*step, parent, count), books.tables[parent][:count]
        yield step
        missing, free = books.needed(num_tokens) - len(prefix), books.free()
        if missing <= len(free):
            books.record(name, prefix + free[:missing], num_tokens)


def in_words(case: Case) -> str:
    told = []
    for action, name, *rest in case.trace:
        shared = f", {rest[2]} of the blocks of {rest[1]!r}" if rest[1:] else ""
        call = "free_blocks" if action == "end" else "allocate_blocks"
        told.append(f"{call}({', '.join([repr(name), *map(str, rest[:1])])}{shared})")
    return after(f"in a pool of {case.num_blocks} blocks of {case.block_size}", told)


def observe(KVCacheManager: type, case: Case, see: Observer) -> None:
    manager = new_manager(KVCacheManager, case.num_blocks, case.block_size)
    books = Books(case.num_blocks, case.block_size)
    for action, name, *rest in case.trace:
        see.picture(picture_of(manager))
        if action == "new":
            observe_allocate(see, manager, books, name, *rest)
        elif name in books.tables:
            manager.free_blocks(name)
            books.forget(name)
        see.stop_if_wrong()


def observe_allocate(
    see: Observer,
    manager: Any,
    books: Books,
    name: str,
    num_tokens: int,
    parent: str = "",
    count: int = 0,
) -> None:
    free, size = books.free(), books.block_size
    prefix: Sequence[int] = books.tables.get(parent, [])[:count]
    if parent.endswith("free"):
        prefix = (manager.free_block_list[count],)
    if parent == "a and free":
        prefix = [*books.tables.get("a", [])[:1], *prefix]
    missing = books.needed(num_tokens) - len(prefix)
    call = f"allocate_blocks({name!r}, {num_tokens}{f', {prefix}' if prefix else ''})"
    arguments = (name, num_tokens, prefix) if prefix else (name, num_tokens)
    error, because = ValueError, ""
    if name in books.tables:
        because = "A second table in place of the first would leak its blocks."
    elif num_tokens < len(prefix) * size:
        because = f"The prefix holds {len(prefix) * size} tokens, more than the request has."
    elif set(prefix) & set(free):
        because = "A free block belongs to no request, so it cannot be shared."
    elif missing > len(free):
        error, because = OutOfBlocks, f"{missing} new blocks are needed, {len(free)} are free."
    if because:
        see.raises(call, error, lambda: manager.allocate_blocks(*arguments), because)
        books.compare(see, manager, f"the refused {call}", FAILED)
        return
    given = list(prefix)
    with see.call(call):
        table = manager.allocate_blocks(*arguments)
    see.kind(call, table, list, "a list of blocks")
    shares = f", of which {len(prefix)} are shared" if prefix else ""
    needed = books.needed(num_tokens)
    because = f"{num_tokens} tokens lie in {needed} blocks of {size}{shares}."
    see.equal(f"the number of blocks that {call} returned", len(table), needed, because)
    begins = "The prefix holds the first tokens."
    see.equal(f"the beginning of the table of {call}", table[: len(prefix)], given, begins)
    taken = sorted(set(table[len(prefix) :]) & set(free))
    once = "Each of the others was free before, and is in the table once."
    see.equal(f"the number of new blocks in {call}", len(taken), missing, once)
    kept = type(manager.block_tables.get(name)).__name__
    grows = "The request grows: `append_tokens` appends to this list."
    see.equal(f"the type of block_tables[{name!r}] after {call}", kept, "list", grows)
    books.record(name, table, num_tokens)
    books.compare(see, manager, call)
    kept = "The caller's list stays as it is."
    see.equal(f"prefix_blocks after {call}", list(prefix), given, kept)
    own = table is not manager.block_tables.get(name)
    see.true(f"the list that {call} returned", own, f"is block_tables[{name!r}] itself")


def draw(KVCacheManager: type) -> Any:
    manager = new_manager(KVCacheManager, 12, 16)
    states = {"empty": viz.snapshot_pool(manager)}
    for name, num_tokens in (("ada", 20), ("ben", 33), ("cleo", 64)):
        manager.allocate_blocks(name, num_tokens)
        states[f"{name}: {num_tokens} tokens"] = viz.snapshot_pool(manager)
    manager.free_blocks("ben")
    states["ben ends"] = viz.snapshot_pool(manager)
    manager.allocate_blocks("dora", 70, manager.block_tables["cleo"][:2])
    states["dora: 70, cleo's first 32 shared"] = viz.snapshot_pool(manager)
    return film(states, frames=[1, 3, 4, 5])
