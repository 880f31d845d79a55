"""The check of 02.2: what `RadixTree.match` returns, and what it leaves behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from yaie.course.exercises.nb02.trees import (
    NO_RETURN,
    PrefixTable,
    all_nodes,
    consistent,
    drawn,
    grown,
    handed_over,
    random_tokens,
    recognized,
    table,
)
from yaie.course.core.expect import equal, fail, given, true


def check_match(RadixTree: type) -> None:
    _match(RadixTree(1), [7, 8], "an empty tree")
    long = [1, 2, 3, 4]
    for prompt in (long, [1, 2, 9], [1, 2], [1, 2, 3, 4, 5, 6], [8, 1, 2], []):
        _match(grown(RadixTree, long), prompt, f"a tree that holds {long}")
    two = [1, 2, 3, 4], [1, 2, 5, 6]
    for prompt in ([1, 2, 5, 6], [1, 2, 5, 9], [1, 2, 7], [1, 9]):
        _match(grown(RadixTree, *two), prompt, f"a tree that holds {two[0]} and {two[1]}")
    six = [1, 2, 3, 4, 5, 6]
    for prompt in (six, [1, 2, 3, 4, 9, 9], [1, 2, 3, 9], [1, 2, 3], [1], [1, 9, 3, 4]):
        tree = grown(RadixTree, six, block_size=2)
        _match(tree, prompt, f"a tree of block_size 2 that holds {six}")
    _check_namespaces(RadixTree)
    generator = random.Random(0)
    for _ in range(60):
        size = generator.randrange(1, 4)
        tree, oracle = RadixTree(size), PrefixTable(size)
        for turn in range(8):
            tokens, space = random_tokens(generator, 12), generator.choice(("", "", "adapter"))
            values = [1000 * turn + block for block in range(len(tokens))]
            with given(f"insert({tokens}), which calls match"):
                tree.insert(tokens, values, space)
            oracle.insert(tokens, values, space)
            prompt = tokens[: generator.randrange(13)] + random_tokens(generator, 4)
            found = _match(tree, prompt, f"a random tree of block_size {size}", space)
            equal(found.values, oracle.match(prompt, space), f"the values of match({prompt})")
            equal(table(tree), oracle.values(), "what a random tree holds after several matches")


def _check_namespaces(RadixTree: type) -> None:
    from yaie.engine import radix

    for space in ("adapter", "", "unseen"):
        tree = radix.RadixTree()
        tree.insert([1, 2], [10, 11], "adapter")
        tree.insert([1, 3], [12, 13])
        scene = "a tree that holds [1, 2] in namespace 'adapter' and [1, 3] in ''"
        _match(handed_over(tree, RadixTree), [1, 2], scene, space)


def _match(tree: Any, prompt: Sequence[int], scene: str, namespace: str = "") -> Any:
    """Call `match` on a scene, and look at all that it returns and leaves behind."""
    size = tree.block_size
    whole, shared, beyond, values = _walk(tree, prompt, namespace)
    want = shared // size * size
    times = {(name, tokens): node.last_access for name, tokens, node in all_nodes(tree)}
    held, clock = table(tree), max(times.values(), default=0)
    space = f", {namespace!r}" if namespace else ""
    call = f"match({list(prompt)}{space}) on {scene}"
    in_blocks = (
        f"split cuts at whole blocks, and inside an edge only. Round what is shared down to a "
        f"multiple of block_size ({size}), and split only if that is less than the whole key."
    )
    hashable = (
        "A child's label is a tuple, and a slice of a list is a list: make a tuple of token_ids "
        "once, at the start."
    )
    with drawn(tree, prompt[:want]):
        with (
            recognized(call, TypeError, "unhashable", hashable),
            given(
                call,
                errors={
                    ValueError: in_blocks,
                    KeyError: "Not every block has a child; `.get` gives None if there is none.",
                },
            ),
        ):
            found = tree.match(list(prompt), namespace) if namespace else tree.match(list(prompt))
        if found is None:
            fail(f"{call} is None, expected a Match. {NO_RETURN}")
        for name in ("node", "length", "values"):
            true(hasattr(found, name), f"{call} has no `{name}`: return a `Match`.")
        _check_root(found.node, tree, namespace, call)
        _check_found(found, call, whole, shared, beyond, want, values, size)
        _check_node(found.node, list(prompt[:want]), beyond, call)
        _check_times(found.node, tree, call, clock, times)
        equal(table(tree), held, f"what the tree holds after {call}", "match removes nothing.")
        consistent(tree, call)
    return found


def _walk(tree: Any, prompt: Sequence[int], namespace: str) -> tuple[int, int, int, list]:
    """By comparing every edge: tokens of whole edges that agree, of all that agree, up to the end
    of the edge in which they part, and the values of whole blocks that agree and that lie on
    that edge."""
    prompt = tuple(prompt)
    shared, best = 0, None
    for name, tokens, node in all_nodes(tree):
        agree = sum(tokens[:n] == prompt[:n] for n in range(1, min(len(tokens), len(prompt)) + 1))
        if name == namespace and agree > shared:
            shared, best = agree, (tokens, node)
    if best is None:
        return 0, 0, 0, []
    tokens, node = best
    values = []
    above = node
    while above.parent is not None:
        values = [*above.values, *values]
        above = above.parent
    whole = len(tokens) if shared == len(tokens) else len(tokens) - len(node.key)
    return whole, shared, len(tokens), values


def _check_root(node: Any, tree: Any, namespace: str, call: str) -> None:
    top, root = node, tree.roots.get(namespace)
    while getattr(top, "parent", None) is not None:
        top = top.parent
    true(
        top is root or (root is None and getattr(top, "namespace", None) == namespace),
        f"{call}: its node is not below the root of the namespace. Begin at the root of its own "
        "namespace, `self._root_of(namespace)`: what one tenant computed is not for another.",
    )


def _check_found(
    found: Any,
    call: str,
    whole: int,
    shared: int,
    beyond: int,
    want: int,
    values: list,
    size: int,
) -> None:
    moved = {"node": found.node.parent is not None, "values": bool(found.values)}
    names = " and the ".join(name for name, did in moved.items() if did)
    equal(
        found.length,
        want,
        f"the length of {call}",
        because=f"The first {shared} tokens agree, which makes {want // size} whole blocks.",
        mistakes=[
            (whole, f"The match ends inside an edge, {want - whole} tokens after the node above "
             "it. Matching stopped at the node's boundary: the part of the edge that agrees "
             "counts too."),
            (beyond, f"The whole edge was counted, though only {want} tokens agree. The key "
             "of a child is as long as its edge; only its first block is known to agree when the "
             "lookup succeeds."),
            (shared, f"{shared} tokens agree, but only whole blocks of {size} have a value: round "
             "down to a multiple of block_size."),
            (0 if names else None, f"The {names} moved on, but the length is still 0: add what "
             "each edge shares."),
            (0, "Nothing was found. Children are filed under their first block, a tuple of "
             "block_size tokens: is that what you looked up?"),
            (want + size, "That is one block too many: the block that differs is not shared."),
            (want - size, "That is one block too few."),
        ],
    )  # fmt: skip
    mine = list(found.values)
    blocks = want // size
    equal(
        mine,
        values[:blocks],
        f"the values of {call}",
        because=f"One value for each of the {blocks} blocks that matched, from the root down.",
        mistakes=[
            ([], "The values of the nodes on the way are missing: extend the list at every node."),
            (values, "These are the values of the whole edge, but only part of it matched: "
             "take them after the split, from the upper half."),
            (values[blocks:], "These are the values behind the match. split returns the new upper "
             "node; the node you gave it keeps the lower half."),
            (values[whole // size : blocks] if whole < want else values[-len(mine):] if mine
             else None, "Only the last node's values are there. Collect them on the way: extend, "
             "do not replace."),
        ],
    )  # fmt: skip


def _check_node(node: Any, want: list, beyond: int, call: str) -> None:
    path, top = [], node
    while getattr(top, "parent", None) is not None:
        path = [*top.key, *path]
        top = top.parent
    equal(
        path,
        want,
        f"the tokens from the root to the node of {call}",
        because="The returned node must end exactly where the match does.",
        mistakes=[
            ([], "The node is the root: move `node` down at every step."),
            (path if len(path) == beyond > len(want) else None,
             "That node goes on behind the match: only part of its edge matched. Who locks it "
             "locks more than matched. Split the edge there, and return the upper half, which is "
             "what split returns."),
        ],
    )  # fmt: skip


def _check_times(node: Any, tree: Any, call: str, clock: int, times: dict) -> None:
    late, on_path = [], set()
    while node.parent is not None:
        late.append((node.last_access > clock, list(node.key)))
        on_path.add(id(node))
        node = node.parent
    if late and not any(fresh for fresh, _ in late):
        fail(
            f"{call} gave its path no new `last_access`. It was used now: eviction must know, or "
            "it takes what is in use. Ask the clock for the time, `self._tick()`."
        )
    stale = [key for fresh, key in late if not fresh]
    true(
        not stale,
        f"{call} did not refresh `last_access` all the way: the node with key "
        f"{stale[0] if stale else ''} keeps its old time. A match uses every node on its path, "
        "not only the last.",
    )
    for name, tokens, other in all_nodes(tree):
        true(
            id(other) in on_path or other.last_access == times.get((name, tokens)),
            f"{call} refreshed `last_access` of {list(other.key)}, which the match did not use. "
            "Stamp the upper half after the split, not the edge before it.",
        )
