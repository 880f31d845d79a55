"""The check of 02.3: what `RadixTree.split` must keep."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from yaie.course.checks.nb02.trees import (
    NO_RETURN,
    all_nodes,
    consistent,
    drawn,
    grown,
    handed_over,
    random_tokens,
    table,
)
from yaie.course.core.expect import equal, fail, given, raises, true


def check_split(RadixTree: type) -> None:
    for cut in (2, 4):
        tree, node = _locked_tree(RadixTree)
        with drawn(tree):
            _check_one_split(tree, node, cut)
    for wrong, why in (
        (0, "The upper half would be empty."),
        (6, "The lower half would be empty."),
        (8, "The edge has only 6 tokens."),
        (3, "A block of 2 would be torn."),
    ):
        tree, node = _locked_tree(RadixTree)
        before = table(tree)
        call = f"split(node, {wrong}) of an edge of 6 tokens with block_size 2"
        raises(ValueError, partial(tree.split, node, wrong), call, why)
        equal(table(tree), before, f"the tree after {call}", "Test before you change anything.")
    generator = random.Random(0)
    for _ in range(60):
        _check_random_split(RadixTree, generator)


def _locked_tree(RadixTree: type) -> tuple[Any, Any]:
    """An edge of three blocks with two children; "a" and "b" passed it, and two locks hold it."""
    from yaie.engine import radix

    tree = radix.RadixTree(block_size=2)
    tree.insert([1, 2, 3, 4, 5, 6, 7, 8], [10, 11, 12, 13])
    tree.insert_request("a", [1, 2, 3, 4, 5, 6, 7, 8])
    tree.insert_request("b", [1, 2, 3, 4, 5, 6, 9, 9])
    node = tree.match([1, 2, 3, 4, 5, 6]).node
    tree.lock(node)
    tree.lock(tree.match([1, 2, 3, 4, 5, 6, 7, 8]).node)
    return handed_over(tree, RadixTree), node


def _check_one_split(tree: Any, node: Any, cut: int) -> None:
    call = f"split(node, {cut}) of the edge {list(node.key)} with block_size 2"
    key, values, root, below = node.key, node.values, node.parent, dict(node.children)
    time, blocks, num_nodes = node.last_access, cut // 2, tree.num_nodes
    with given(call):
        upper = tree.split(node, cut)
    true(upper is not None, f"{call} is None, expected the new upper node. {NO_RETURN}")
    if upper is node or node.key == key[:cut]:
        told = (
            "The node was shortened, and a new one took the rest. Then a request that remembers "
            "and locked `node` has a shorter prefix than it computed: make the upper one new."
            if node.key == key[:cut]
            else "It returned the lower half. Whoever asked for a split wants the new upper node."
        )
        fail(f"{call}: {told}")
    equal(upper.key, key[:cut], f"{call}: the upper node's key")
    equal(
        node.key,
        key[cut:],
        f"{call}: the lower node's key",
        mistakes=[(key, "The lower node still has the whole edge: cut the beginning off.")],
    )
    in_blocks = "A value is for a block, not for a token: cut at num_tokens // block_size."
    twice = "The lower node still has them all: cut the beginning off."
    equal(upper.values, values[:blocks], f"{call}: the upper node's values", in_blocks)
    equal(node.values, values[blocks:], f"{call}: the lower node's values", in_blocks,
          [(values, twice)])  # fmt: skip
    true(upper.parent is root, f"{call}: the upper node's `parent` is not the old parent.")
    true(node.parent is upper, f"{call}: the lower node's `parent` is not the upper node.")
    true(
        root.children.get(key[:2]) is upper and len(root.children) == 1,
        f"{call}: the parent's children are {root.children}. Its child {key[:2]} must be the "
        "upper node now, or nobody finds the way to it.",
    )
    true(
        node.children == below,
        f"{call}: the lower node's children are {node.children}, expected {below}. What went on "
        "behind the edge goes on behind its lower half.",
    )
    label = key[cut : cut + 2]
    true(
        upper.children.get(label) is node and len(upper.children) == 1,
        f"{call}: the upper node's children are {upper.children}. It has one, the lower node, "
        f"filed under the first block of its new key, {label}.",
    )
    _check_inherited(upper, node, call, time)
    equal(tree.num_nodes, num_nodes + 1, f"{call}: num_nodes", "There is one node more.")
    consistent(tree, call)


def _check_inherited(upper: Any, node: Any, call: str, time: int) -> None:
    equal(
        (upper.lock_count, node.lock_count),
        (2, 2),
        f"{call}: the lock counts of upper and lower node",
        "Each lock holds the whole prefix.",
        [((0, 2), "The split lost the lock count. Whoever locked the edge locked both halves: "
          "with 0 above, a later unlock finds no lock to take back, and fails."),
         ((2, 0), "The lower half lost its locks, so eviction may take what a request uses."),
         ((1, 1), "Locks are not divided: each of them holds both halves.")],
    )  # fmt: skip
    equal(
        (upper.last_access, node.last_access),
        (time, time),
        f"{call}: last_access of upper and lower node",
        "A split is no use of the prefix: both halves were last used when the edge was.",
    )
    equal(
        (upper.request_ids, node.request_ids),
        ({"a", "b"}, {"a", "b"}),
        f"{call}: the request ids of upper and lower node",
        "A request that passed the edge passed both halves.",
        [((set(), {"a", "b"}), "The split lost the request ids: both requests begin with the "
          "tokens of the upper half as well.")],
    )  # fmt: skip
    true(
        upper.request_ids is not node.request_ids,
        f"{call}: both nodes share one set of request ids, so an id added to one appears in the "
        "other. Give the upper node a copy.",
    )


def _check_random_split(RadixTree: type, generator: random.Random) -> None:
    size = generator.randrange(1, 4)
    sequences = [random_tokens(generator, 6 * size) for _ in range(4)]
    tree = grown(RadixTree, *sequences, block_size=size)
    for _ in range(3):
        wide = [node for _, _, node in all_nodes(tree) if len(node.key) > size]
        if not wide:
            return
        node = generator.choice(wide)
        tree.lock(node)
        cut = size * generator.randrange(1, len(node.key) // size)
        call = f"split({node}, {cut}) in a tree of block_size {size} that holds {sequences}"

        def facts(node: Any) -> tuple:
            return node.lock_count, node.last_access

        before = table(tree, facts)
        with given(call):
            tree.split(node, cut)
        equal(table(tree, facts), before, f"{call}: value, locks and time of each block")
        consistent(tree, call)
