"""What the exercises of notebook 02 share: trees to start from, and what a tree holds."""

import copy
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Observer
from yaie.course.exercises.oracles import PrefixOracle
from yaie.engine import radix
from yaie.engine.radix_node import as_token_ids

DEEP = 1_100  # nodes below each other, as when a prompt grows by a token per request


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


def deep_tree(depth: int) -> tuple[Any, PrefixOracle]:
    """A path of `depth` nodes with one token and one value each, and the same as a table."""
    tree, tokens, known = radix.RadixTree(), [1] * depth, _deep_table(depth)
    oracle = copy.copy(known)
    for name in ("value", "last_access", "locks"):  # copied: hashing all prefixes takes 0.3 s
        setattr(oracle, name, dict(getattr(known, name)))
    tree.insert(tokens, list(range(depth)))
    for length in range(depth - 1, 0, -1):
        tree.match(tokens[:length])
    return tree, oracle


@lru_cache(maxsize=1)
def _deep_table(depth: int) -> PrefixOracle:
    oracle = PrefixOracle(1)
    oracle.insert([1] * depth, list(range(depth)))
    return oracle


def all_nodes(tree: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    """Every node but the roots: its namespace, the tokens down to its end, and the node."""
    stack = [(name, (), root) for name, root in tree.roots.items()]
    found = []
    for name, tokens, node in stack:
        below = [(name, tokens + spelled(child.key), child) for child in node.children.values()]
        found += below
        stack += below
    return found


def nodes_below(node: Any) -> list[Any]:
    """Every node below, once, also where the way down leads back."""
    found, stack = {}, list(node.children.values())
    while stack:
        below = stack.pop()
        if id(below) not in found:
            found[id(below)] = below
            stack += below.children.values()
    return list(found.values())


def see_an_end(see: Observer, after: str, *nodes: tuple[str, Any]) -> None:
    """End the case if the way down from a node leads back to it, so that no walk would end."""
    for name, node in nodes:
        if any(below is node for below in nodes_below(node)):
            see.picture(None)
            hangs = "Each node hangs below one other, and none below itself."
            see.require(f"the {name} after {after}", False, "is below itself", hangs)


def spelled(key: Any) -> tuple:
    """The tokens of a key, to be read; of what is no key, its items."""
    return tuple(as_token_ids(key) if isinstance(key, str) else key)


def path_to(node: Any) -> list[int]:
    """The tokens from the root down to a node's end."""
    tokens: list[int] = []
    while getattr(node, "parent", None) is not None:
        tokens = [*spelled(node.key), *tokens]
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
                wrong.append(f"the child with key {spelled(child.key)} has another `parent`")
            if label != child.key[: tree.block_size]:
                filed = spelled(label) if isinstance(label, str) else repr(label)
                wrong.append(f"the child with key {spelled(child.key)} is filed under {filed}")
    filed = "A child's parent is the node above it, its label the first block of its key."
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
        now = viz.snapshot_tree(tree, matched=tokens)
        return viz.draw_tree(now, viz.snapshot_tree(before))

    return picture


def random_tokens(generator: random.Random, length: int) -> list[int]:
    """Tokens of a tiny vocabulary, so that sequences share prefixes of every length."""
    return [generator.choice((1, 1, 1, 2, 3)) for _ in range(generator.randrange(length + 1))]
