"""What the exercises of notebook 04 share: requests that use a cache, beside an oracle.

A trace has steps of the form (action, …). A step whose request does not run is passed over, so
any part of a trace is a trace.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02.trees import all_nodes, path_to, table
from yaie.course.exercises.nb03.books import FAILED, after
from yaie.course.exercises.oracles import PrefixOracle
from yaie.engine.kv_cache import BlockPool
from yaie.engine.radix import Match, RadixNode
from yaie.engine.radix_node import as_token_ids

SIZE = 2  # tokens per block, unless a case has its own
PROMPT = [1, 2, 3, 4, 5, 6]  # three full blocks
USERS = "Each table that holds a block is a user of it, and so is the cache if its tree names it."
WORDS = {  # of each action, to tell a trace with
    "keep": "{0} was cached",
    "match": "match({0!r})",
    "start": "{0!r} starts with {1}",
    "insert": "insert of the first {1} tokens of {0!r}",
    "insert without the last": "insert of the first {1} tokens of {0!r} without the last block",
    "insert too few": "insert of {0!r} with {1} blocks",
    "insert a free one": "insert of {0!r} with a free block",
    "end": "{0!r} ends",
    "lock": "{0} is locked",
    "evict": "evict({0})",
    "make_room": "make_room({0})",
}


def case(*steps: tuple, num_blocks: int = 12, size: int = SIZE) -> Case:
    return Case(in_words, trace=steps, num_blocks=num_blocks, size=size)


def in_words(case: Case) -> str:
    told = []
    for action, *rest in case.trace:
        space = f" in namespace {rest[-1]!r}" if rest[-1] == "adapter" else ""
        told.append(WORDS[action].format(*rest) + space)
    return after(f"in a pool of {case.num_blocks} blocks of {case.size}", told)


def random_steps(seed: int, steps: int = 480) -> Iterator[tuple]:
    """Requests that start and end, several at a time, many with the same beginning.

    Some find no room, so that their end is no step: 400 or more are left.
    """
    generator = random.Random(seed)
    running: list[str] = []
    for number in range(steps):
        if running and (len(running) > 9 or generator.random() < 0.45):
            yield "end", running.pop(generator.randrange(len(running)))
            continue
        length = generator.randrange(1, 10)
        prompt = [generator.randrange(2) if i % 3 else 7 for i in range(length)]
        running.append(f"r{number}")
        yield "start", running[-1], prompt, generator.choice(["", "", "adapter"])


@dataclass
class Running:
    """A request that runs.

    Attributes:
        table: its blocks.
        node: where its cached beginning ended when it started; it is locked.
        matched: the namespace and the tokens of that beginning.
    """

    tokens: list[int]
    namespace: str
    table: list[int]
    node: Any
    matched: tuple[str, tuple[int, ...]]


def observe(RadixCache: type, case: Case, see: Observer) -> None:
    life = Life(RadixCache, case.num_blocks, case.size, see)
    for action, *rest in case.trace:
        getattr(life, action.replace(" ", "_"))(*rest)
        see.stop_if_wrong()


class Life:
    """Takes the steps of a trace, with the learner's cache and with the oracle."""

    def __init__(self, RadixCache: type, num_blocks: int, size: int, see: Observer) -> None:
        self.see, self.num_blocks, self.size = see, num_blocks, size
        self.cache = RadixCache(BlockPool(num_blocks), size)
        self.oracle = PrefixOracle(size)
        self.running: dict[str, Running] = {}

    def users(self) -> list[int]:
        """How many users each block has: tables, and the tree."""
        held = [block for request in self.running.values() for block in request.table]
        held += self.oracle.value.values()
        return [held.count(block) for block in range(self.num_blocks)]

    def compare(self, call: str, because: str = "") -> None:
        """Note what the tree names, who uses which block, what is free and what could be."""
        see, cache, pool = self.see, self.cache, self.cache.pool
        blocks = sorted(block for _, _, node in all_nodes(cache.tree) for block in node.values)
        held = self.oracle.value
        what = f"the list of blocks in the tree after {call}"
        see.equal(what, blocks, sorted(held.values()), because)
        what = f"the block of each prefix in the tree after {call}"
        see.equal(what, table(cache.tree), held, because)
        counts, users = [pool.ref_count(block) for block in range(self.num_blocks)], self.users()
        see.equal(f"the count of users per block after {call}", counts, users, because or USERS)
        free = "A block without users is free."
        see.equal(f"pool.num_free after {call}", pool.num_free, users.count(0), free)
        available = users.count(0) + self.oracle.evictable
        both = "It counts the free blocks and those that no lock keeps in the cache."
        see.equal(f"num_available after {call}", cache.num_available, available, both)

    # ------------------------------------------------------------------ steps that only prepare

    def keep(self, tokens: list[int], namespace: str = "") -> None:
        """A request computes `tokens` and ends; the cache keeps its full blocks."""
        blocks = self.cache.pool.allocate(-(-len(tokens) // self.size))
        self.cache.insert(tokens, blocks, namespace)
        self.oracle.insert(tokens, blocks, namespace)
        self.cache.pool.release(blocks)

    def lock(self, tokens: list[int]) -> None:
        self.cache.lock(self.cache.tree.match(tokens).node)
        self.oracle.match(tokens)
        self.oracle.lock(("", tuple(tokens)))

    # ------------------------------------------------------------------ steps that are observed

    def match(self, given: list[int] | str, namespace: str = "") -> Any:
        see, prompt = self.see, as_token_ids(given) if isinstance(given, str) else given
        tokens = copy.copy(given)
        call = f"match({given!r}{f', {namespace!r}' if namespace else ''})"
        with see.call(call):
            found = self.cache.match(tokens, namespace) if namespace else self.cache.match(tokens)
        own = "They are the request's own tokens, which it has yet to compute."
        see.equal(f"token_ids after {call}", tokens, given, own)
        see.kind(call, found, Match)
        blocks = self.oracle.match(prompt[:-1], namespace)
        length = len(blocks) * self.size
        whole = (
            f"Of {len(prompt)} tokens one is left over, and blocks of {self.size} are shared whole."
        )
        see.equal(f"the length of {call}", found.length, length, whole)
        see.equal(
            f"the values of {call}",
            list(found.values),
            blocks,
            "One block per `block_size` tokens.",
        )
        path, ends = path_to(found.node), "Node, length and values describe the same prefix."
        see.equal(f"the path to the node of {call}", path, prompt[:length], ends)
        self.compare(call, "A match takes no reference, no lock and no block.")
        return found

    def start(self, name: str, prompt: list[int], namespace: str = "") -> None:
        """Match, lock, make room, share and allocate, as a scheduler does."""
        found = self.match(prompt, namespace)
        self.see.stop_if_wrong()
        matched = namespace, tuple(prompt[: found.length])
        self.cache.lock(found.node)
        self.oracle.lock(matched)
        missing = -(-len(prompt) // self.size) - len(found.values)
        if not self.make_room(missing):
            self.cache.unlock(found.node)
            self.oracle.lock(matched, -1)
            return
        self.cache.pool.share(found.values)
        blocks = [*found.values, *self.cache.pool.allocate(missing)]
        self.running[name] = Running(prompt, namespace, blocks, found.node, matched)

    def insert_without_the_last(self, name: str, num_tokens: int) -> None:
        self.insert(name, num_tokens, "the blocks but the last")

    def insert(self, name: str, num_tokens: int, given: str = "the blocks") -> None:
        if name not in self.running:
            return
        see, request = self.see, self.running[name]
        table = request.table if given == "the blocks" else request.table[:-1]
        tokens, blocks = request.tokens[:num_tokens], list(table)
        call = f"insert({tokens}, {given} of {name!r}"
        call += f", {request.namespace!r})" if request.namespace else ")"
        with see.call(call):
            node = self.cache.insert(list(tokens), blocks, request.namespace)
        self.oracle.insert(tokens, request.table, request.namespace)
        see.equal(f"the list of blocks given to {call}", blocks, table, "It is the table.")
        see.kind(call, node, RadixNode)
        full = tokens[: len(tokens) // self.size * self.size]
        because = "It is the node to lock, and the lock has to protect all full blocks."
        see.equal(f"the path to the node of {call}", path_to(node), full, because)
        self.compare(call)

    def insert_too_few(self, name: str, num_blocks: int) -> None:
        if name not in self.running:
            return
        tokens, blocks = self.running[name].tokens, self.running[name].table[:num_blocks]
        call = f"insert({tokens}, {num_blocks} blocks of {name!r})"
        because = (
            f"{len(tokens)} tokens fill {len(tokens) // self.size} blocks, and {num_blocks} came."
        )
        self.see.raises(call, ValueError, lambda: self.cache.insert(tokens, blocks), because)
        self.compare(f"the refused {call}", FAILED)

    def insert_a_free_one(self, name: str) -> None:
        if name not in self.running:
            return
        tokens, blocks = self.running[name].tokens, self.running[name].table[:-1]
        blocks.append(self.cache.pool.free_block_list[0])
        call = f"insert({tokens}, the blocks of {name!r} but the last, and the free {blocks[-1]})"
        because = "A free block is another request's soon, so it cannot be cached."
        self.see.raises(call, ValueError, lambda: self.cache.insert(tokens, blocks), because)
        self.compare(f"the refused {call}", FAILED)

    def end(self, name: str) -> None:
        if name not in self.running:
            return
        self.insert(name, len(self.running[name].tokens))
        self.see.stop_if_wrong()
        request = self.running.pop(name)
        self.cache.pool.release(request.table)
        self.cache.unlock(request.node)
        self.oracle.lock(request.matched, -1)
        self.compare(f"the end of {name!r}")

    def evict(self, number: int) -> None:
        call = f"evict({number})"
        with self.see.call(call):
            got = self.cache.evict(number)
        gone = self.oracle.evict(number)
        oldest = (
            "What was used longest ago goes first, from the end of a sequence, unless it is locked."
        )
        self.compare(call, oldest)
        self.see.equal(f"the return value of {call}", got, len(gone), "It counts evicted blocks.")

    def make_room(self, number: int) -> bool:
        free = self.users().count(0)
        most = free + self.oracle.evictable
        fits = number <= most
        call = f"make_room({number}) ({free} free)"
        with self.see.call(call):
            got = self.cache.make_room(number)
        if fits:
            self.oracle.evict(number - free)
            why = f"Only what is missing is evicted: {max(0, number - free)} of {number}."
        else:
            why = f"At most {most} blocks can be free, so nothing is evicted."
        self.compare(call, why)
        can = f"{most} blocks are free or can be evicted." if fits else why
        self.see.equal(f"the return value of {call}", got, fits, can)
        self.see.stop_if_wrong()
        return fits
