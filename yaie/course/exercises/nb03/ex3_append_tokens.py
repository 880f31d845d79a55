"""03.3: room for more tokens, and a copy of a block that another request uses too."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb03.books import (
    FAILED,
    Books,
    after,
    film,
    new_manager,
    picture_of,
    slots,
)
from yaie.engine.kv_cache import OutOfBlocks

LAYERS = 2
# Steps are ("new", name, tokens), ("fork", parent, name), ("end", name), ("append", name, tokens).


def cases() -> Iterator[Case]:
    grow = (("a", 1), ("b", 1), ("a", 1), ("a", 3), ("a", 6), ("b", 11), ("a", 4))
    two = (("new", "a", 3), ("new", "b", 4))
    yield case(12, 4, *two, *(("append", name, tokens) for name, tokens in grow))
    for name, num_tokens in (("a", -1), ("unknown", 1), ("unknown", 0), ("a", 12)):
        yield case(3, 4, ("new", "a", 3), ("append", name, num_tokens))
    tail, full = [(("new", "other", 1), ("new", "a", n), ("fork", "a", "b")) for n in (6, 8)]
    yield case(8, 4, *tail, ("append", "b", 1), ("append", "a", 1))
    yield case(8, 4, *full, ("append", "b", 1))
    yield case(8, 4, *tail, ("append", "b", 0))
    yield case(4, 4, *tail, ("append", "b", 3))
    generator = random.Random(0)
    for block_size in (1, 3, 4):
        yield case(14, block_size, *random_steps(generator))


def case(num_blocks: int, block_size: int, *steps: tuple) -> Case:
    return Case(in_words, trace=steps, num_blocks=num_blocks, block_size=block_size)


def random_steps(generator: random.Random) -> Iterator[tuple]:
    living: list[str] = []
    for number in range(150):
        action, name = generator.random(), f"r{number}"
        if not living or action < 0.15:
            yield "new", name, 0
            living.append(name)
            continue
        chosen = generator.choice(living)
        if action < 0.3:
            yield "fork", chosen, name
            living.append(name)
        elif action < 0.45:
            yield "end", chosen
            living.remove(chosen)
        else:
            yield "append", chosen, generator.randrange(6)


def in_words(case: Case) -> str:
    words = {
        "new": "allocate_blocks({0!r}, {1})",
        "fork": "fork({0!r}, {1!r})",
        "end": "free_blocks({0!r})",
        "append": "append_tokens({0!r}, {1})",
    }
    told = [words[action].format(*rest) for action, *rest in case.trace]
    return after(f"in a pool of {case.num_blocks} blocks of {case.block_size}", told)


class Texts(Books):
    """The oracle, which also knows what each request wrote: numbers that came nowhere before."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.texts: dict[str, list[int]] = {}
        self.written = 0

    def write(self, manager: Any, name: str, num_tokens: int) -> None:
        """Store keys and values of a request's last tokens, in every layer."""
        length, text = self.lengths[name], self.texts.setdefault(name, [])
        where = slots(self.tables[name], self.block_size, length - num_tokens, length)
        for slot in where:
            self.written += 1
            text.append(self.written)
            for number, (_, pool) in enumerate(pools_of(manager)):
                pool.flatten(0, 1)[slot] = self.written + 1000.0 * number

    def read(self, see: Observer, manager: Any, when: str, because: str) -> None:
        """Note what every request reads through its table."""
        got, problem = [], ""
        for number, (what, pool) in enumerate(pools_of(manager)):
            rows = pool.flatten(0, 1).flatten(1).tolist()
            for name, text in self.texts.items():
                where = slots(self.tables[name], self.block_size, 0, len(text))
                got.append([rows[slot] for slot in where])
                for position, (row, token) in enumerate(zip(got[-1], text, strict=True)):
                    if row != [token + 1000.0 * number] * len(row):
                        place = f"the {what} of token {position} of {name!r}"
                        problem = problem or f"is not what was written: {place} are lost"
        see.note(f"what the requests read {when}", got, problem, because)


def pools_of(manager: Any) -> Iterator[tuple[str, Any]]:
    for layer in range(LAYERS):
        yield f"keys of layer {layer}", manager.key_pools[layer]
        yield f"values of layer {layer}", manager.value_pools[layer]


def observe(KVCacheManager: type, case: Case, see: Observer) -> None:
    manager = new_manager(KVCacheManager, case.num_blocks, case.block_size, LAYERS)
    books = Texts(case.num_blocks, case.block_size)
    for action, name, *rest in case.trace:
        if action == "new":
            if books.needed(rest[0]) <= len(books.free()):
                books.record(name, manager.allocate_blocks(name, rest[0]), rest[0])
                books.write(manager, name, rest[0])
        elif name not in books.tables and name != "unknown":
            continue  # a shorter trace has no such request
        elif action == "append":
            see.picture(picture_of(manager))
            observe_append(see, manager, books, name, rest[0])
        elif action == "fork":
            manager.fork(name, rest[0])
            books.record(rest[0], books.tables[name], books.lengths[name])
            books.texts[rest[0]] = list(books.texts[name])
        else:
            manager.free_blocks(name)
            books.forget(name)
            del books.texts[name]
        see.stop_if_wrong()


def observe_append(see: Observer, manager: Any, books: Texts, name: str, num_tokens: int) -> None:
    size, free, users = books.block_size, books.free(), books.users()
    old, length = list(books.tables.get(name, [])), books.lengths.get(name, 0)
    end = length + num_tokens
    copies = num_tokens > 0 and length % size > 0 and users[old[-1]] > 1
    missing = books.needed(end) - len(old) + copies
    call, error, because = f"append_tokens({name!r}, {num_tokens})", None, ""
    if name not in books.tables:
        error, because = KeyError, f"{name!r} has no block table."
    elif num_tokens < 0:
        error, because = ValueError, "Tokens cannot be taken back."
    elif missing > len(free):
        copy = " and a copy of the last" if copies else ""
        because = f"{end} tokens need {books.needed(end)} blocks{copy}: {missing} more are missing."
        error = OutOfBlocks
    if error:
        see.raises(call, error, lambda: manager.append_tokens(name, num_tokens), because)
        books.compare(see, manager, f"the refused {call}", FAILED)
        books.read(see, manager, f"after the refused {call}", FAILED)
        return
    with see.call(call):
        got = manager.append_tokens(name, num_tokens)
    table = list(manager.block_tables[name])
    because = (
        f"{name!r} had {len(old)} blocks, and {end} tokens need {books.needed(end)} of {size}."
    )
    see.equal(f"the number of blocks after {call}", len(table), books.needed(end), because)
    kept = old[:-1] if copies else old
    because = "Only a partly filled last block that another request uses is replaced, by a copy."
    see.equal(f"the unchanged part of the table after {call}", table[: len(kept)], kept, because)
    if copies:
        own = table[len(kept) : len(old)] != old[-1:]
        problem = f"is still block {old[-1]}, which another request uses too"
        see.true(f"the block that {call} writes into", own, problem)
    taken = sorted(set(table[len(kept) :]) & set(free))
    because = "Each of them was free before, and is in the table once."
    see.equal(f"the number of new blocks of {call}", len(taken), missing, because)
    books.record(name, table, end)
    books.compare(see, manager, call)
    because = f"The table is {table}: a slot is block * block_size + offset."
    see.equal(f"the list that {call} returned", got, slots(table, size, length, end), because)
    see.stop_if_wrong()
    because = "A copied block keeps its tokens, in the keys and values of every layer."
    books.read(see, manager, f"after {call}", because)
    books.write(manager, name, num_tokens)
    because = "A block with two users is never written."
    books.read(see, manager, f"once the tokens of {call} are written", because)


def draw(KVCacheManager: type) -> Any:
    manager = new_manager(KVCacheManager, 8, 16)
    manager.allocate_blocks("a", 40)
    states = {"a: 40 tokens": viz.snapshot_pool(manager)}
    manager.fork("a", "b")
    states["b is forked"] = viz.snapshot_pool(manager)
    manager.append_tokens("b", 1)
    states["b writes: copy first"] = viz.snapshot_pool(manager)
    manager.append_tokens("a", 14)
    states["a writes 14 in its own"] = viz.snapshot_pool(manager)
    return film(states)
