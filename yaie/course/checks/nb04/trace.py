"""Random requests on the learner's cache and on a naive one, compared after every step."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb04.common import SIZE, named, new_cache
from yaie.course.core.expect import equal, given
from yaie.course.lessons.naive_cache import NaiveCache

STEPS = 400


def check_trace(RadixCache: Any, seed: int) -> None:
    """Require that the learner's cache does what the naive one does."""
    requests = Requests(RadixCache, seed)
    for number in range(STEPS):
        with given(f"Step {number} of a random trace (blocks of {SIZE}, 16 in the pool)"):
            requests.compare(requests.step(number))


class Requests:
    """Requests that start, press for room and finish, several at a time."""

    def __init__(self, RadixCache: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.cache = new_cache(RadixCache, num_blocks=16)
        self.oracle = NaiveCache(SIZE)
        self.running: dict[int, tuple[list[int], str, list[int], Any, list[Any]]] = {}

    def step(self, number: int) -> str:
        """Start or finish a request, and return what was done."""
        if self.running and self.random.random() < 0.45:
            return self.finish(self.random.choice(list(self.running)))
        return self.start(number)

    def draw(self) -> tuple[list[int], str]:
        """A prompt of one to nine tokens, likely to begin like another, and its namespace."""
        length = self.random.randrange(1, 10)
        prompt = [self.random.randrange(2) if i % 3 else 7 for i in range(length)]
        return prompt, self.random.choice(["", "", "salt"])

    def start(self, number: int) -> str:
        prompt, namespace = self.draw()
        call = f"match({prompt}, {namespace!r})"
        with given(call):
            found = self.cache.match(prompt, namespace)
        keys = self.oracle.match(prompt, namespace)
        blocks = [self.oracle.blocks[key] for key in keys]
        equal((found.length, found.values), (len(keys) * SIZE, blocks), f"{call}: (length, values)")
        self.cache.lock(found.node)
        self.oracle.locks.update(keys)
        missing = -(-len(prompt) // SIZE) - len(blocks)
        if not self.make_room(missing):
            self.cache.unlock(found.node)
            self.oracle.locks.subtract(keys)
            return f"a request with {prompt} that found no room"
        self.cache.pool.share(blocks)
        table = blocks + self.cache.pool.allocate(missing)
        self.running[number] = prompt, namespace, table, found.node, keys
        return f"the start of a request with {prompt}"

    def make_room(self, number: int) -> bool:
        call = f"make_room({number}) with {self.cache.pool.num_free} free blocks"
        lacking = number - self.cache.pool.num_free
        fits = lacking <= self.oracle.num_evictable
        before = sorted(self.oracle.blocks.values())
        with given(call):
            got = self.cache.make_room(number)
        equal(bool(got), fits, f"{call}: what it returned")
        gone = sorted(self.oracle.evict(lacking)) if fits else []
        held = set(named(self.cache))
        equal([b for b in before if b not in held], gone, f"{call}: the list of evicted blocks")
        return fits

    def finish(self, number: int) -> str:
        prompt, namespace, table, node, keys = self.running.pop(number)
        call = f"insert({prompt}, {table}, {namespace!r})"
        with given(call):
            self.cache.insert(prompt, table, namespace)
        self.oracle.insert(prompt, table, namespace)
        self.cache.pool.release(table)
        self.cache.unlock(node)
        self.oracle.locks.subtract(keys)
        return f"{call} and the end of that request"

    def compare(self, done: str) -> None:
        """A block has as many users as tables and tree name it; the tree names the right ones."""
        tree = named(self.cache)
        want = sorted(self.oracle.blocks.values())
        equal(tree, want, f"after {done}, the list of blocks that the tree names")
        tables = [block for _, _, table, _, _ in self.running.values() for block in table]
        users = tables + tree
        for block in range(self.cache.pool.num_blocks):
            equal(
                self.cache.pool.ref_count(block),
                users.count(block),
                f"after {done}, pool.ref_count({block})",
                because="Each table that names a block is a user of it, and so is the tree.",
            )
