"""Token tries and radix trees at one moment, and what changed between two.

A `TreeState` is plain data: it stays as it was when the tree goes on. Two states are compared by
the prefixes they hold, not by their node objects, so that a split, a new branch and an eviction
are recognized whatever way the tree's author made them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from yaie.course.viz import style
from yaie.engine.radix_node import as_token_ids

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class TreeNode:
    """One node: the tokens on the edge into it, their text, and what the tree knows of it.

    `parent` is an index into `TreeState.nodes`, None for a root. `values` is empty for a trie.
    """

    key: tuple[int, ...]
    text: str
    parent: int | None
    values: tuple[Any, ...] = ()
    lock_count: int = 0
    last_access: int | None = None
    request_ids: tuple[str, ...] = ()
    is_rest: bool = False  # the end of an edge whose beginning is still there


@dataclass(frozen=True)
class TreeState:
    """A tree at one moment: its nodes, parents before children, and the tokens just looked up.

    `matched` is what a match found, `namespace` where.
    """

    nodes: tuple[TreeNode, ...]
    block_size: int = 1
    matched: tuple[int, ...] = ()
    namespace: str = ""


def snapshot_tree(
    tree: Any, decode: Decode | None = None, matched: Sequence[int] = (), namespace: str = ""
) -> TreeState:
    """Record a `TokenTrie` or a `RadixTree`, or anything with the same attributes.

    Args:
        tree: has `root`, or `roots` by namespace, of nodes with `children`.
        decode: token ids to text; without it the ids themselves are shown.
        matched: the tokens that a match just found, to be marked.
        namespace: the namespace of `matched`.
    """
    roots = getattr(tree, "roots", None) or {"": tree.root}
    nodes: list[TreeNode] = []
    stack = [(root, (), name, None) for name, root in reversed(list(roots.items()))]
    while stack:  # a loop, because a trie is as deep as its longest prompt
        node, key, text, parent = stack.pop()
        nodes.append(_record(node, key, text if parent is None else _text(key, decode), parent))
        index = len(nodes) - 1
        for label, child in reversed(list(node.children.items())):
            child_key = getattr(child, "key", None)
            child_key = (label,) if child_key is None else tuple(as_token_ids(child_key))
            stack.append((child, child_key, "", index))
    return TreeState(tuple(nodes), getattr(tree, "block_size", 1), tuple(matched), str(namespace))


def _record(node: Any, key: tuple[int, ...], text: str, parent: int | None) -> TreeNode:
    return TreeNode(
        key,
        text,
        parent,
        tuple(getattr(node, "values", ())),
        getattr(node, "lock_count", 0),
        getattr(node, "last_access", None),
        tuple(sorted(map(str, getattr(node, "request_ids", ())))),
    )


def _text(key: Sequence[int], decode: Decode | None) -> str:
    return " ".join(map(str, key)) if decode is None else decode(list(key))


# ---------------------------------------------------------------------------------- changes


@dataclass
class Marks:
    """What happened to each node since the previous state, and what is gone."""

    tags: dict[int, str] = field(default_factory=dict)  # node → "new", "split", "evicted"
    matched: dict[int, float] = field(default_factory=dict)  # node → part of its key that matched


def compare(state: TreeState, previous: TreeState | None) -> tuple[TreeState, Marks]:
    """Find what is new, split, matched or gone.

    Returns:
        The state with the nodes that are gone added to it, and the marks of all nodes.
    """
    marks = Marks(matched=_matched_parts(state))
    if previous is None:
        return state, marks
    now, before = _prefixes(state), _prefixes(previous)
    before_all = {prefix for prefixes in before for prefix in prefixes}
    before_ends = {prefixes[-1] for prefixes in before}
    for index, prefixes in enumerate(now):
        if prefixes[-1] not in before_all:
            marks.tags[index] = "new"
        elif prefixes[-1] not in before_ends and len(state.nodes[index].key) > 0:
            marks.tags[index] = "split"
    return _with_ghosts(state, previous, now, before, marks), marks


def _prefixes(state: TreeState) -> list[list[int]]:
    """For each node, a number for the prefix that ends at each of its blocks."""
    prefixes: list[list[int]] = []
    for node in state.nodes:
        if node.parent is None:
            prefixes.append([hash(("root", node.text))])
            continue
        last, own = prefixes[node.parent][-1], []
        for start in range(0, len(node.key), state.block_size):
            last = hash((last, node.key[start : start + state.block_size]))
            own.append(last)
        prefixes.append(own or [last])
    return prefixes


def _matched_parts(state: TreeState) -> dict[int, float]:
    """Walk `state.matched` down the tree; the last node may be matched in part."""
    parts: dict[int, float] = {}
    if not state.matched:
        return parts
    covered = {}  # node → how many tokens of `matched` end at it, if it lies on the path
    for index, node in enumerate(state.nodes):
        if node.parent is None:
            if node.text == state.namespace:
                covered[index] = 0
                parts[index] = 1.0
            continue
        start = covered.get(node.parent)
        if start is None:
            continue
        pairs = zip(node.key, state.matched[start:], strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        shared -= shared % state.block_size  # siblings may begin alike, if not for a whole block
        if shared:
            parts[index] = shared / len(node.key)
        if shared == len(node.key):
            covered[index] = start + shared
    return parts


def _with_ghosts(
    state: TreeState,
    previous: TreeState,
    now: list[list[int]],
    before: list[list[int]],
    marks: Marks,
) -> TreeState:
    """Append what the previous state had and this one has not, hung where it used to be."""
    home = {prefix: index for index, prefixes in enumerate(now) for prefix in prefixes}
    nodes = list(state.nodes)
    for old, prefixes in zip(previous.nodes, before, strict=True):
        gone = [prefix for prefix in prefixes if prefix not in home]
        if not gone:
            continue
        kept = len(prefixes) - len(gone)
        parent = home[prefixes[kept - 1]] if kept else home[before[old.parent][-1]]
        key = old.key[kept * previous.block_size :]
        text = f"its last {style.count(len(key), 'token')}" if kept else old.text
        if kept and marks.tags.get(parent) == "split":
            del marks.tags[parent]  # not split: it lost its tail
        nodes.append(TreeNode(key, text, parent, old.values[kept:], is_rest=kept > 0))
        marks.tags[len(nodes) - 1] = "evicted"
        home.update(dict.fromkeys(gone, len(nodes) - 1))
    return TreeState(tuple(nodes), state.block_size, state.matched, state.namespace)
