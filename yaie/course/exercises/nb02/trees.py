"""What the exercises of notebook 02 share: trees to start from, and an oracle that knows no tree.

The oracle keeps a table instead: for every block that is held, the tokens from the start of the
sequence to the end of that block. It is slow, and hard to get wrong.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yaie.course.core.observe import Observer
from yaie.engine import radix


def grown(RadixTree: type, *sequences: Sequence[int], block_size: int = 1) -> Any:
    """A tree of the learner's class that the reference has filled.

    So the state is right, and the learner's methods meet it for the first time when they are
    called. The values of sequence 0 are 100, 101, …, those of sequence 1 are 200, 201, …
    """
    tree = radix.RadixTree(block_size)
    for number, tokens in enumerate(sequences, start=1):
        tree.insert(tokens, [100 * number + block for block in range(len(tokens) // block_size)])
    return handed_over(tree, RadixTree)


def handed_over(tree: Any, RadixTree: type) -> Any:
    """The same tree as an object of the learner's class."""
    mine = RadixTree(tree.block_size)
    vars(mine).update(vars(tree))
    return mine


def deep_tree(depth: int) -> tuple[Any, PrefixTable]:
    """A path of `depth` nodes with one token and one value each, and the same as a table."""
    tree, oracle, tokens = radix.RadixTree(), PrefixTable(1), [1] * depth
    tree.insert(tokens, list(range(depth)))
    oracle.insert(tokens, list(range(depth)))
    for length in range(depth - 1, 0, -1):
        tree.match(tokens[:length])
    return tree, oracle


class PrefixTable:
    """Does what a radix tree does, by a table of prefixes.

    Attributes:
        used: (namespace, tokens up to the end of a block) → (time of last use, value).
        locks: the same keys → how many locks are on it, if any.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.used: dict[tuple, tuple[int, Any]] = {}
        self.locks: dict[tuple, int] = {}
        self.now = 0

    def blocks_of(self, tokens: Sequence[int], namespace: str = "") -> Iterator[tuple]:
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            yield namespace, tuple(tokens[:end])

    def match(self, tokens: Sequence[int], namespace: str = "") -> list[Any]:
        """The values of the longest prefix."""
        self.now += 1
        values = []
        for key in self.blocks_of(tokens, namespace):
            if key not in self.used:
                break
            values.append(self.used[key][1])
            self.used[key] = self.now, values[-1]
        return values

    def insert(self, tokens: Sequence[int], values: Sequence[Any], namespace: str = "") -> None:
        self.now += 1
        for key, value in zip(self.blocks_of(tokens, namespace), values, strict=False):
            self.used[key] = self.now, self.used.get(key, (0, value))[1]

    def lock(self, tokens: Sequence[int], namespace: str, by: int) -> None:
        for key in self.blocks_of(tokens, namespace):
            self.locks[key] = self.locks.get(key, 0) + by

    def evict(self, num_values: int) -> list[Any]:
        evicted = []
        while len(evicted) < num_values:
            above = {(space, tokens[: -self.block_size]) for space, tokens in self.used}
            free = [k for k in self.used if k not in above and not self.locks.get(k)]
            if not free:
                break
            evicted.append(self.used.pop(min(free, key=lambda key: self.used[key][0]))[1])
        return evicted

    def values(self) -> dict[tuple, Any]:
        return {key: value for key, (_, value) in self.used.items()}


def all_nodes(tree: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    """Every node but the roots: its namespace, the tokens down to its end, and the node."""
    stack = [(name, (), root) for name, root in tree.roots.items()]
    found = []
    for name, tokens, node in stack:
        below = [(name, tokens + tuple(child.key), child) for child in node.children.values()]
        found += below
        stack += below
    return found


def path_to(node: Any) -> list[int]:
    """The tokens from the root down to a node's end."""
    tokens: list[int] = []
    while getattr(node, "parent", None) is not None:
        tokens = [*node.key, *tokens]
        node = node.parent
    return tokens


def table(tree: Any, facts: Callable[[Any], tuple] = lambda node: ()) -> dict[tuple, Any]:
    """What the tree holds, block by block: its value, and whatever `facts` says of its node."""
    held = {}
    for name, tokens, node in all_nodes(tree):
        start = len(tokens) - len(node.key)
        for number, value in enumerate(node.values, start=1):
            block = name, tokens[: start + number * tree.block_size]
            held[block] = (value, *facts(node)) if facts(node) else value
    return held


def see_consistent(see: Observer, tree: Any, after: str) -> None:
    """Note whether links, keys and counts of a tree agree with each other."""
    nodes = all_nodes(tree)
    wrong = []
    for node in [*tree.roots.values(), *(node for _, _, node in nodes)]:
        for label, child in node.children.items():
            if child.parent is not node:
                wrong.append(f"the child with key {child.key} has another node as its `parent`")
            if label != tuple(child.key[: tree.block_size]):
                wrong.append(f"the child with key {child.key} is filed under {label}")
    filed = "A child's parent is the node above it, its label the first block of its key, a tuple."
    see.note(f"after {after}", wrong, wrong[0] if wrong else "", filed)
    values = sum(len(node.values) for _, _, node in nodes)
    free = sum(len(node.values) for _, _, node in nodes if node.lock_count == 0)
    kept = "`_cut` and `split` keep this count."
    see.equal(f"num_nodes after {after}", tree.num_nodes, len(nodes) + len(tree.roots), kept)
    see.equal(f"num_values after {after}", tree.num_values, values, kept)
    see.equal(f"num_evictable after {after}", tree.num_evictable, free, kept)


def tree_picture(tree: Any, tokens: Sequence[int] = ()) -> Callable[[], Any]:
    """Draws the tree as it is when the picture is drawn, with what changed since this call."""
    before = copy.deepcopy(tree)

    def picture() -> Any:
        from yaie.course.viz import draw_tree, snapshot_tree

        return draw_tree(snapshot_tree(tree, matched=tokens), snapshot_tree(before))

    return picture


def random_tokens(generator: random.Random, length: int) -> list[int]:
    """Tokens of a tiny vocabulary, so that sequences share prefixes of every length."""
    return [generator.choice((1, 1, 1, 2, 3)) for _ in range(generator.randrange(length + 1))]
