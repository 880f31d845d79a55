"""The check of 02.4: what `RadixTree.evict` may take, and in which order."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.checks.nb02.trees import (
    NO_RETURN,
    PrefixTable,
    all_nodes,
    consistent,
    drawn,
    grown,
    random_tokens,
    recognized,
    table,
)
from yaie.course.core.expect import equal, given, true


def check_evict(RadixTree: type) -> None:
    a, b, c = [1, 2, 3], [7, 8], [1, 2, 4]
    _evict(grown(RadixTree, a, b), 0, f"a tree that holds {a} (older) and {b}")
    _evict(grown(RadixTree, a, b), 2, f"a tree that holds {a} (older) and {b}")
    tree = grown(RadixTree, a, b)
    _use(tree, a)
    _evict(tree, 1, f"a tree that holds {a} and {b}, where {a} was used last")
    tree = grown(RadixTree, a, b)
    _lock(tree, a)
    _evict(tree, 2, f"a tree that holds {a} (older, locked) and {b}")
    tree = grown(RadixTree, a, b)
    _lock(tree, a)
    _lock(tree, b)
    _evict(tree, 1, f"a tree that holds {a} and {b}, both locked")
    tree = grown(RadixTree, a, c)
    _use(tree, a)
    _use(tree, c)
    _use(tree, a)
    _evict(tree, 2, f"a tree that holds {c} and {a}, where {a} was used last")
    _evict(grown(RadixTree, a, c), 4, f"a tree that holds {a} and {c}")
    _evict(grown(RadixTree, a, b), 9, f"a tree that holds {a} and {b}")
    _evict(grown(RadixTree, a, [1, 2]), 1, f"a tree that holds {a}, of which [1, 2] was used last")
    pairs = [1, 2, 3, 4, 5, 6]
    tree = grown(RadixTree, pairs, block_size=2)
    _evict(tree, 1, f"a tree of block_size 2 that holds {pairs}")
    tree = grown(RadixTree)
    tree.insert([5, 6], [50, 51], "adapter")
    tree.insert([5, 7], [52, 53])
    _evict(tree, 3, "a tree that holds [5, 6] in namespace 'adapter' (older) and [5, 7] in ''")
    generator = random.Random(0)
    for _ in range(40):
        _check_random_evictions(RadixTree, generator)


def _lock(tree: Any, tokens: list[int]) -> None:
    """Lock by hand, so that no time moves."""
    _, _, node = next(found for found in all_nodes(tree) if list(found[1]) == tokens)
    tree.lock(node)


def _use(tree: Any, tokens: list[int]) -> None:
    from yaie.engine import radix

    radix.RadixTree.match(tree, tokens)


def _evict(tree: Any, count: int, scene: str) -> None:
    """Call `evict` on a scene, and compare what it took with what a table of prefixes takes."""
    blocks = table(tree, lambda node: (node.last_access, node.lock_count, id(node)))
    oracle = PrefixTable(tree.block_size)
    oracle.used = {block: (time, value) for block, (value, time, _, _) in blocks.items()}
    oracle.locks = {block: locks for block, (_, _, locks, _) in blocks.items()}
    want = sorted(oracle.evict(count))
    call = f"evict({count}) on {scene}"
    the_root = "The root has no parent and holds nothing: it is never a leaf to evict."
    no_leaf = "With nothing unlocked there is no leaf to choose: stop, and return what you have."
    with drawn(tree):
        with (
            recognized(call, AttributeError, "'NoneType' object has no attribute", the_root),
            recognized(call, ValueError, "empty", no_leaf),
            given(call),
        ):
            got = tree.evict(count)
        true(got is not None, f"{call} is None, expected a list of values. {NO_RETURN}")
        true(
            not isinstance(got, int),
            f"{call} is {got}: the removed values are wanted, not how many they are. Their blocks "
            "go back to the pool.",
        )
        because = _explain(blocks, got, want, count)
        equal(sorted(got), want, f"{call}, sorted,", because)
        left = "What was returned must be gone, and nothing else: `_cut` does it."
        equal(table(tree), oracle.values(), f"what is left after {call}", left)
        consistent(tree, call)


def _explain(blocks: dict[tuple, tuple], got: list, want: list, count: int) -> str:
    """Which mistake took `got`. `blocks` has value, time, locks and node of each block."""
    taken = {block for block, (value, *_) in blocks.items() if value in got}
    if any(blocks[block][2] for block in taken):
        return (
            "A locked node was evicted. A running request still reads these blocks: pass over "
            "every node whose lock_count is above 0."
        )
    for space, tokens in blocks.keys() - taken:  # kept, though what it stands on is gone?
        above = [b for b in taken if b[0] == space and b[1] == tokens[: len(b[1])]]
        if any(blocks[b][3] == blocks[space, tokens][3] for b in above):
            return (
                "That is the beginning of a leaf. Take its tail: the beginning is what others "
                "share, and a prefix with a gap is no use to anyone."
            )
        if above:
            return (
                "A node with children was evicted. They hang in the air, and no match finds them "
                "again: only leaves may go."
            )
    if len(got) > count:
        return (
            f"That is more than asked for, {len(got)} instead of {count}. Of a leaf that holds "
            "more than is needed only the tail goes; its beginning stays."
        )
    missed = {block for block, (value, *_) in blocks.items() if value in want} - taken
    if len(got) < len(want) and any(space for space, _ in missed):
        return "There was more to take: walk from `self.roots.values()`, all namespaces."
    if len(got) < len(want):
        return (
            "There was more to take: a node whose last child is gone is a leaf from then on. Look "
            "for leaves anew after each one."
        )
    return (
        "Something else was used longer ago. Take the leaf with the smallest `last_access`, "
        "whenever it was inserted."
    )


def _check_random_evictions(RadixTree: type, generator: random.Random) -> None:
    size = generator.randrange(1, 4)
    tree, oracle, locked = RadixTree(size), PrefixTable(size), []
    for turn in range(25):
        tokens, space = random_tokens(generator, 9), generator.choice(("", "", "adapter"))
        action = generator.choice(("insert", "insert", "match", "lock", "unlock", "evict"))
        scene = f"evict in a random trace of insert, match, lock and unlock, block_size {size}"
        with given(scene):
            if action == "insert":
                values = [100 * turn + block for block in range(len(tokens))]
                tree.insert(tokens, values, space)
                oracle.insert(tokens, values, space)
            elif action in ("match", "lock"):
                found = tree.match(tokens, space)
                oracle.match(tokens, space)
                if action == "lock":
                    tree.lock(found.node)
                    locked.append((found.node, tokens[: found.length], space))
                    oracle.lock(tokens[: found.length], space, +1)
            elif action == "unlock" and locked:
                node, held, its_space = locked.pop(generator.randrange(len(locked)))
                tree.unlock(node)
                oracle.lock(held, its_space, -1)
            elif action == "evict":
                count = generator.randrange(5)
                equal(sorted(tree.evict(count)), sorted(oracle.evict(count)), f"evict({count})")
            equal(table(tree), oracle.values(), f"what the tree holds after {action}")
            consistent(tree, action)
