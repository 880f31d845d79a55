"""Requests start, grow, fork, finish, abort and are evicted, in any order; nothing leaks.

The machine uses `RadixCache` and `KVCacheManager` as the scheduler does. Every token that a
request computes is written into the pools as a number that stands for the whole sequence up to
it, which is what keys and values depend on; every block that becomes free is filled with NaN. So
a stale block, or one that was shared and then overwritten, is caught by what it contains.

Hypothesis drives it from an empty pool again and again, and shrinks what fails; a random walk
drives it for longer, so that it meets every kind of event many times, and counts that it does.
"""

import random
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracles import LONG, PrefixOracle, agrees, contents, examples, path_of

from yaie.course.lessons.kv_contents import read_kv, write_kv
from yaie.engine.kv_cache import KVCacheManager, OutOfBlocks
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixNode


@dataclass
class Live:
    """A running request: its tokens, how many are computed, and what it has locked."""

    tokens: list[int]
    namespace: str
    node: RadixNode
    locked: tuple[int, ...]
    computed: int


randoms = st.randoms(use_true_random=False)
anything_runs = precondition(lambda self: self.live)


class MemoryMachine(RuleBasedStateMachine):
    @initialize(block_size=st.sampled_from([1, 4, 16]), num_blocks=st.integers(4, 16))
    def start_empty(self, block_size, num_blocks):
        self.kv = KVCacheManager(num_blocks, block_size, num_heads=1, head_dim=1, num_layers=2)
        for pool in self.pools:
            pool.fill_(float("nan"))
        self.cache = RadixCache(self.kv.pool, block_size)
        self.oracle = PrefixOracle(block_size)
        self.live: dict[int, Live] = {}
        self.numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.next_id = 0
        self.history: list[list[int]] = []
        self.events = Counter()

    @property
    def pools(self):
        return (*self.kv.key_pools, *self.kv.value_pools)

    def content(self, namespace: str, tokens) -> list[float]:
        """The number of each token of a sequence: one for each distinct prefix."""
        prefixes = [(namespace, tuple(tokens[: i + 1])) for i in range(len(tokens))]
        return [float(self.numbers.setdefault(p, len(self.numbers) + 1)) for p in prefixes]

    def compute(self, request_id: int, count: int):
        """What the model does: write the next `count` tokens of a request, in both layers."""
        live = self.live[request_id]
        start, end = live.computed, live.computed + count
        numbers = self.content(live.namespace, live.tokens[:end])[start:]
        keys = torch.tensor(numbers).view(-1, 1, 1)
        for layer in range(2):
            write_kv(self.kv, request_id, start, keys + layer / 2, -keys - layer / 2, layer)
        live.computed = end

    def keep(self, request_id: int):
        """What the scheduler does with computed blocks: into the cache, and locked there."""
        live = self.live[request_id]
        computed = live.tokens[: live.computed]
        table, size = self.kv.block_tables[request_id], self.cache.block_size
        first, last = len(live.locked) // size, len(computed) // size
        new = computed[first * size : last * size]
        if live.locked and self.cache.extend(live.node, new, table[first:last]):
            self.events["extended"] += bool(new)
        else:
            node = self.cache.insert(computed, table, live.namespace)
            self.cache.lock(node)
            self.cache.unlock(live.node)
            live.node = node
        self.oracle.insert(computed, table, live.namespace)
        self.oracle.lock((live.namespace, live.locked), -1)
        live.locked = tuple(computed[: last * size])
        self.oracle.lock((live.namespace, live.locked))

    def make_room(self, number: int) -> bool:
        """Make room in the cache and in the oracle alike, and expect the same of both."""
        free, available = self.kv.pool.num_free, self.cache.num_available
        before = contents(self.cache.tree)
        made = self.cache.make_room(number)
        assert made == (number <= available)
        if made:
            self.events["evicted"] += len(self.oracle.evict(number - free))
            assert self.kv.pool.num_free == max(free, number)
        else:
            assert contents(self.cache.tree) == before
            self.events["refused"] += 1
        return made

    def some(self, rng, ready=False):
        ids = [i for i, live in self.live.items() if not ready or live.computed == len(live.tokens)]
        return rng.choice(sorted(ids)) if ids else None

    def prompt(self, rng) -> list[int]:
        """New tokens, or the beginning of tokens that were there before and then new ones."""
        size, tokens = self.cache.block_size, []
        if self.history and rng.random() < 0.7:
            old = rng.choice(self.history)
            tokens = old[: rng.randint(0, len(old))]
        for _ in range(rng.randint(0, 3)):
            block = [0] * size
            block[rng.choice([0, -1])] = rng.randint(0, 2)
            tokens = tokens + block
        return tokens + [0] * rng.randint(0, size)

    # ------------------------------------------------------------------------ what happens

    @rule(rng=randoms)
    def start(self, rng):
        """Match, lock, make room, allocate; or leave everything as it was."""
        size = self.cache.block_size
        tokens = [*self.prompt(rng), rng.randint(0, 1)]
        namespace = rng.choice(["", "", "", "tenant"])
        found = self.cache.match(tokens, namespace)
        assert found.values == self.oracle.match(
            tokens[: (len(tokens) - 1) // size * size], namespace
        )
        assert found.length < len(tokens)
        path = (namespace, tuple(tokens[: found.length]))
        self.cache.lock(found.node)
        self.oracle.lock(path)
        missing = len(range(0, len(tokens), size)) - len(found.values)
        if not self.make_room(missing):
            self.cache.unlock(found.node)
            self.oracle.lock(path, -1)
            return
        self.kv.allocate_blocks(self.next_id, len(tokens), found.values)
        self.live[self.next_id] = Live(tokens, namespace, found.node, path[1], found.length)
        self.next_id += 1
        self.events["hit" if found.length else "miss"] += 1

    @anything_runs
    @rule(rng=randoms)
    def prefill(self, rng):
        """Compute a chunk of a prompt, or all of it, and keep its full blocks."""
        request_id = self.some(rng)
        live = self.live[request_id]
        left = len(live.tokens) - live.computed
        if left:
            self.compute(request_id, rng.choice([left, rng.randint(1, left)]))
            self.keep(request_id)

    @anything_runs
    @rule(rng=randoms)
    def grow(self, rng):
        """Decode some tokens; a tail that a fork shares is copied first."""
        request_id = self.some(rng, ready=True)
        for _ in range(rng.randint(1, 6) if request_id is not None else 0):
            live = self.live[request_id]
            table, length = self.kv.block_tables[request_id], len(live.tokens)
            full = length % self.cache.block_size == 0
            copy = not full and self.kv.pool.ref_count(table[-1]) > 1
            if (full or copy) and not self.make_room(1):
                with pytest.raises(OutOfBlocks):
                    self.kv.append_tokens(request_id, 1)
                return
            self.kv.append_tokens(request_id, 1)
            self.events["copied"] += copy
            live.tokens.append(rng.randint(0, 1))
            self.compute(request_id, 1)

    @anything_runs
    @rule(rng=randoms)
    def fork(self, rng):
        """Two continuations: the full blocks go to the cache first, and both lock them there."""
        parent = self.some(rng, ready=True)
        if parent is None:
            return
        self.keep(parent)
        self.kv.fork(parent, self.next_id)
        live = self.live[parent]
        self.cache.lock(live.node)
        self.oracle.lock((live.namespace, live.locked))
        self.live[self.next_id] = Live(
            list(live.tokens), live.namespace, live.node, live.locked, live.computed
        )
        self.next_id += 1
        self.events["forked"] += 1

    @anything_runs
    @rule(rng=randoms)
    def finish(self, rng):
        request_id = self.some(rng)
        self.history = [*self.history[-7:], self.live[request_id].tokens]
        self.keep(request_id)
        self.leave(request_id)
        self.events["finished"] += 1

    @anything_runs
    @rule(rng=randoms)
    def abort(self, rng):
        self.leave(self.some(rng))
        self.events["aborted"] += 1

    def leave(self, request_id: int) -> Live:
        live = self.live.pop(request_id)
        self.kv.free_blocks(request_id)
        self.cache.unlock(live.node)
        self.oracle.lock((live.namespace, live.locked), -1)
        with pytest.raises(KeyError):
            self.kv.free_blocks(request_id)
        return live

    @anything_runs
    @rule(rng=randoms)
    def fail(self, rng):
        """An error: what the request computed and found must not be found again."""
        live = self.leave(self.some(rng))
        self.cache.drop(live.node)
        self.oracle.prune((live.namespace, live.locked))
        self.events["failed"] += 1

    @rule(rng=randoms)
    def evict(self, rng):
        number = rng.randint(0, 3)
        free = self.kv.pool.num_free
        wanted = self.oracle.evict(number)
        assert self.cache.evict(number) == len(wanted)
        assert self.kv.pool.num_free == free + len(wanted), "an evicted block still has a user"

    @rule(rng=randoms)
    def look(self, rng):
        """Match without starting, as admission in order of the longest prefix does."""
        tokens, namespace = self.prompt(rng), rng.choice(["", "tenant"])
        whole = max(0, len(tokens) - 1) // self.cache.block_size * self.cache.block_size
        clock = self.cache.tree._clock
        length = self.cache.match_length(tokens, namespace)
        assert self.cache.tree._clock == clock, "asking for the length must not count as a use"
        found = self.cache.match(tokens, namespace)
        assert found.values == self.oracle.match(tokens[:whole], namespace)
        assert found.length == length < max(len(tokens), 1)

    @rule(rng=randoms)
    def pressure(self, rng):
        """Take every block that a request could get, and not one more; give them back."""
        available = self.cache.num_available
        assert not self.make_room(available + 1)
        assert self.make_room(available)
        table = self.kv.allocate_blocks("all", available * self.cache.block_size)
        assert len(table) == available and self.kv.pool.num_free == 0
        self.kv.free_blocks("all")

    # ------------------------------------------------------------------------ what always holds

    @invariant()
    def nothing_leaks(self):
        if not hasattr(self, "kv"):
            return
        pool, cached = self.kv.pool, contents(self.cache.tree)
        users = Counter(block for table in self.kv.block_tables.values() for block in table)
        users.update(cached.values())
        assert len(set(cached.values())) == len(cached)
        assert [pool.ref_count(b) for b in range(pool.num_blocks)] == [
            users[b] for b in range(pool.num_blocks)
        ]
        assert sorted(pool.free_block_list) == [b for b in range(pool.num_blocks) if not users[b]]
        assert pool.num_free + len(users) == pool.num_blocks
        assert self.cache.num_cached == len(cached)
        for block in pool.free_block_list:
            for memory in self.pools:
                memory[block] = float("nan")

    @invariant()
    def the_tree_is_what_the_oracle_says(self):
        if not hasattr(self, "kv"):
            return
        agrees(self.cache.tree, self.oracle)
        # Eviction frees memory only if no request uses the unlocked blocks.
        unlocked = [self.oracle.value[p] for p, count in self.oracle.locks.items() if count == 0]
        assert all(self.kv.pool.ref_count(block) == 1 for block in unlocked)
        assert self.cache.num_available == self.kv.pool.num_free + len(unlocked)
        assert self.cache.tree.num_evictable == len(unlocked)

    @invariant()
    def locked_nodes_stay(self):
        locks = Counter()
        for live in getattr(self, "live", {}).values():
            assert path_of(live.node, live.namespace) == (live.namespace, live.locked)
            locks.update(self.oracle.prefixes(live.locked, live.namespace))
        assert all(self.oracle.locks[path] == count for path, count in locks.items())
        assert sum(locks.values()) == sum(getattr(self, "oracle", PrefixOracle(1)).locks.values())

    @invariant()
    def contents_are_right(self):
        for request_id, live in getattr(self, "live", {}).items():
            wanted = self.content(live.namespace, live.tokens[: live.computed])
            for layer in range(2):
                keys, values = (
                    t.flatten()[: live.computed] for t in read_kv(self.kv, request_id, layer)
                )
                assert (keys - layer / 2).tolist() == wanted
                assert torch.equal(values, -keys)
        if hasattr(self, "kv"):
            size = self.cache.block_size
            for (namespace, tokens), block in contents(self.cache.tree).items():
                wanted = self.content(namespace, tokens)[-size:]
                assert self.kv.blocks[block].keys.flatten().tolist() == wanted

    def teardown(self):
        if not hasattr(self, "kv"):
            return
        for request_id in sorted(self.live):
            self.leave(request_id)
        assert self.cache.num_available == self.kv.pool.num_blocks
        assert self.cache.evict(self.kv.pool.num_blocks) == len(self.oracle.value)
        assert self.kv.pool.num_free == self.kv.pool.num_blocks
        assert self.cache.num_cached == 0
        assert self.kv.block_tables == self.kv.lengths == {}


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = examples(100, steps=50)


INVARIANTS = [
    MemoryMachine.nothing_leaks,
    MemoryMachine.the_tree_is_what_the_oracle_says,
    MemoryMachine.locked_nodes_stay,
    MemoryMachine.contents_are_right,
]
WEIGHTS = {
    "start": 5,
    "prefill": 8,
    "grow": 8,
    "fork": 4,
    "finish": 4,
    "abort": 2,
    "fail": 1,
    "evict": 1,
    "look": 2,
    "pressure": 0.5,
}


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(60 if LONG else 2))
def test_random_walk(block_size, seed):
    rng = random.Random(seed)
    machine = MemoryMachine()
    machine.start_empty(block_size, num_blocks=rng.randint(8, 24))
    for _ in range(700):
        (name,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if len(machine.live) > 4:  # or unfinished prompts fill the pool, and nothing moves
            name = "finish"
        if machine.live or name in ("start", "evict", "look", "pressure"):
            getattr(machine, name)(rng=rng)
        for check in INVARIANTS:
            check(machine)
    machine.teardown()
    wanted = {"hit", "miss", "evicted", "refused", "forked", "finished", "aborted", "failed"}
    wanted |= {"extended"}
    wanted |= {"copied"} if block_size > 1 else set()
    rare = {name: machine.events[name] for name in wanted if machine.events[name] < 5}
    assert LONG or not rare, "the walk met these too seldom to prove anything"
