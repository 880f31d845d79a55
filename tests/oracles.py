"""Naive counterparts of the engine's core: slow, obvious, and sharing no code with it.

Property tests compare the real thing with these on drawn inputs. `examples` says how many: few
and always the same by default, many and fresh ones with `YAIE_LONG_TESTS=1` in the environment
(a failure then prints what reproduces it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import takewhile

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from yaie.course.exercises import oracles
from yaie.engine.radix import RadixNode, RadixTree

LONG = os.environ.get("YAIE_LONG_TESTS", "") not in ("", "0")

Path = tuple[str, tuple[int, ...]]  # namespace, tokens from the root in whole blocks


def examples(number: int, steps: int = 50) -> settings:
    """How many examples a property test draws, and steps a state machine takes in each."""
    return settings(
        max_examples=number * (20 if LONG else 1),
        stateful_step_count=steps,
        derandomize=not LONG,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


# ------------------------------------------------------------------------------------- prompts


def prompts(block_size: int, max_blocks: int = 6) -> st.SearchStrategy[list[int]]:
    """Token lists of any length that often begin alike, and differ anywhere within a block."""
    size = block_size
    blocks = [[0] * size, [1] + [0] * (size - 1), [0] * (size - 1) + [1]]
    body = st.lists(st.sampled_from(blocks), max_size=max_blocks)
    tail = st.integers(0, size - 1).map(lambda n: [0] * n)
    return st.builds(lambda body, tail: [t for block in body for t in block] + tail, body, tail)


# ------------------------------------------------------------------------------------- prefixes


class PrefixOracle:
    """What a radix tree holds, as a flat dict: an entry for every block of every prefix.

    There are no nodes here, so nothing to split: a lock counts on every prefix of what it locks,
    and eviction removes one block at a time.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.value: dict[Path, object] = {}
        self.last_access: dict[Path, int] = {}
        self.locks: dict[Path, int] = {}
        self.clock = 0

    def prefixes(self, tokens: Sequence[int], namespace: str = "") -> list[Path]:
        size = self.block_size
        return [(namespace, tuple(tokens[:end])) for end in range(size, len(tokens) + 1, size)]

    def match(self, tokens: Sequence[int], namespace: str = "") -> list[object]:
        """The values of the longest prefix held; all of it counts as used now."""
        self.clock += 1
        found = self.held(tokens, namespace)
        self.last_access |= dict.fromkeys(found, self.clock)
        return [self.value[path] for path in found]

    def held(self, tokens: Sequence[int], namespace: str = "") -> list[Path]:
        """The prefixes held, shortest first."""
        return list(takewhile(self.value.__contains__, self.prefixes(tokens, namespace)))

    def insert(self, tokens: Sequence[int], values: Sequence[object], namespace: str = "") -> int:
        """Keep what is new; return how many tokens were there before."""
        before = len(self.match(tokens, namespace))
        paths = self.prefixes(tokens, namespace)
        for path, value in list(zip(paths, values, strict=False))[before:]:
            self.value[path] = value
            self.last_access[path] = self.clock
            self.locks[path] = 0
        return before * self.block_size

    def lock(self, path: Path, change: int = 1) -> None:
        for prefix in self.prefixes(path[1], path[0]):
            self.locks[prefix] += change

    @property
    def evictable(self) -> int:
        return sum(count == 0 for count in self.locks.values())

    def evict(self, number: int) -> list[object]:
        """Remove the values of blocks that nothing extends, least recently used first."""
        removed = []
        for _ in range(number):
            inner = {(ns, tokens[: -self.block_size]) for ns, tokens in self.value}
            leaves = [p for p in self.value if p not in inner and self.locks[p] == 0]
            if not leaves:
                break
            oldest = min(leaves, key=self.last_access.__getitem__)
            removed.append(self.remove(oldest))
        return removed

    def prune(self, path: Path) -> None:
        """Remove a prefix from its end on, up to where a lock or another prefix needs it."""
        for prefix in reversed(self.prefixes(path[1], path[0])):
            if self.locks[prefix] or any(extends(path, prefix) for path in self.value):
                break
            self.remove(prefix)

    def remove(self, path: Path) -> object:
        del self.last_access[path], self.locks[path]
        return self.value.pop(path)


def extends(path: Path, prefix: Path) -> bool:
    """Whether a path goes on where a prefix ends."""
    is_longer = len(path[1]) > len(prefix[1])
    return path[0] == prefix[0] and is_longer and path[1][: len(prefix[1])] == prefix[1]


def all_nodes(tree: RadixTree) -> Iterator[tuple[Path, RadixNode]]:
    """Every node with its path from the root of its namespace, roots included."""
    stack = [((namespace, ()), root) for namespace, root in tree.roots.items()]
    while stack:
        (namespace, tokens), node = stack.pop()
        yield (namespace, tokens), node
        stack.extend(((namespace, tokens + c.key), c) for c in node.children.values())


def path_of(node: RadixNode, namespace: str = "") -> Path:
    """The tokens from the root to a node."""
    keys = []
    while node.parent is not None:
        keys.append(node.key)
        node = node.parent
    return namespace, tuple(t for key in reversed(keys) for t in key)


def contents(tree: RadixTree) -> dict[Path, object]:
    """The value of every block of every prefix in a tree."""
    size, found = tree.block_size, {}
    for (namespace, tokens), node in all_nodes(tree):
        above = len(tokens) - len(node.key)
        for i, value in enumerate(node.values):
            found[namespace, tokens[: above + (i + 1) * size]] = value
    return found


def check_tree(tree: RadixTree) -> None:
    """Recount everything a radix tree counts, and check how its nodes hang together."""
    nodes = list(all_nodes(tree))
    for _, node in nodes:
        for first, child in node.children.items():
            assert child.parent is node
            assert child.key[: tree.block_size] == first
            assert len(child.key) > 0
            assert len(child.key) == len(child.values) * tree.block_size
            assert child.last_access <= node.last_access
            assert child.request_ids <= node.request_ids
        if node.parent is not None:
            assert node.lock_count >= sum(child.lock_count for child in node.children.values())
        else:
            assert (node.key, node.values, node.lock_count) == ((), [], 0)
    assert tree.num_nodes == len(nodes)
    assert tree.num_values == sum(len(node.values) for _, node in nodes)
    unlocked = [node for _, node in nodes if node.lock_count == 0]
    assert tree.num_evictable == sum(len(node.values) for node in unlocked)


def agrees(tree: RadixTree, oracle: PrefixOracle) -> None:
    """Check that a tree holds exactly what the oracle holds, with the same locks and times."""
    check_tree(tree)
    assert contents(tree) == oracle.value
    for path, node in all_nodes(tree):
        above = len(path[1]) - len(node.key)
        for end in range(above + tree.block_size, len(path[1]) + 1, tree.block_size):
            prefix = (path[0], path[1][:end])
            assert oracle.locks[prefix] == node.lock_count
            assert oracle.last_access[prefix] == node.last_access
    assert tree.num_evictable == oracle.evictable


# ------------------------------------------------------------------------------------- attention


naive_attention, naive_rotary = oracles.attention, oracles.rotary

# ------------------------------------------------------------------------------------- sampling

EXAMPLE = [0.4, 0.3, 0.15, 0.1, 0.05]
# What is drawn from EXAMPLE with a temperature, top-k, top-p and min-p: relative weights.
FILTERED = {
    "plain": ((1.0, 0, 1.0, 0.0), EXAMPLE),
    "temperature 2": ((2.0, 0, 1.0, 0.0), [p**0.5 for p in EXAMPLE]),
    "temperature 0.5": ((0.5, 0, 1.0, 0.0), [p**2 for p in EXAMPLE]),
    "top_k": ((1.0, 2, 1.0, 0.0), [0.4, 0.3, 0, 0, 0]),
    "top_p": ((1.0, 0, 0.8, 0.0), [0.4, 0.3, 0.15, 0, 0]),
    "min_p": ((1.0, 0, 1.0, 0.3), [0.4, 0.3, 0.15, 0, 0]),
    "top_k before top_p": ((1.0, 3, 0.8, 0.0), [0.4, 0.3, 0, 0, 0]),
    "temperature before top_p": ((0.5, 0, 0.8, 0.0), [0.16, 0.09, 0, 0, 0]),
}


def check_frequencies(tokens: torch.Tensor, name: str) -> None:
    """Tokens come as often as `FILTERED[name]` says, and not as often as another entry says."""
    counts = torch.bincount(tokens.cpu(), minlength=len(EXAMPLE)).tolist()
    wanted = FILTERED[name][1]
    assert chi_square_p(counts, wanted) > 1e-3
    for other, (_, wrong) in FILTERED.items():
        shares = [[w / sum(ws) for w in ws] for ws in (wanted, wrong)]
        if max(abs(a - b) for a, b in zip(*shares, strict=True)) > 0.1:
            assert chi_square_p(counts, wrong) < 1e-4, other


def chi_square_p(counts: Sequence[int], weights: Sequence[float]) -> float:
    """How likely counts at least this far from the relative weights are (Pearson's test).

    0 if something came up that has no weight.
    """
    total, probabilities = sum(counts), [weight / sum(weights) for weight in weights]
    if any(c > 0 and p == 0 for c, p in zip(counts, probabilities, strict=True)):
        return 0.0
    kept = [(c, total * p) for c, p in zip(counts, probabilities, strict=True) if p > 0]
    assert all(expected >= 5 for _, expected in kept), "too few draws for the approximation"
    statistic = sum((c - expected) ** 2 / expected for c, expected in kept)
    freedom = torch.tensor((len(kept) - 1) / 2, dtype=torch.float64)
    return torch.special.gammaincc(freedom, torch.tensor(statistic / 2).double()).item()
