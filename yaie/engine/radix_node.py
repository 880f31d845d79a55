"""The nodes of a radix tree, and what a search in it finds."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


class RadixNode:
    """A run of tokens that no other sequence has split yet.

    Attributes:
        key: the tokens on the edge from `parent` to this node.
        values: one value for every `block_size` tokens of `key`.
        children: by the first block of the child's key.
        lock_count: how many users need this node to stay. A parent's is never below its child's.
        last_access: time of the last match or insertion that passed here, on the tree's clock.
        request_ids: requests that begin with the tokens from the root down to here.
        namespace: of a root, the namespace that it holds.
    """

    __slots__ = (
        "children",
        "in_heap",
        "key",
        "last_access",
        "lock_count",
        "namespace",
        "parent",
        "request_ids",
        "values",
    )

    def __init__(
        self,
        key: tuple[int, ...],
        values: list[Any],
        parent: RadixNode | None,
        namespace: str = "",
    ) -> None:
        self.key = key
        self.values = values
        self.parent = parent
        self.namespace = namespace
        self.children: dict[tuple[int, ...], RadixNode] = {}
        self.lock_count = 0
        self.last_access = 0
        self.request_ids: set[Hashable] = set()
        self.in_heap = False

    def path_values(self) -> list[Any]:
        """The values from the root down to here: those of the whole sequence that ends here."""
        path, node = [], self
        while node is not None:
            path.append(node.values)
            node = node.parent
        return [value for values in reversed(path) for value in values]

    def __repr__(self) -> str:
        return f"RadixNode({len(self.key)} tokens, {len(self.children)} children)"


@dataclass
class Match:
    """What a tree holds of a sequence: its first `length` tokens, ending exactly at `node`."""

    node: RadixNode
    length: int = 0
    values: list[Any] = field(default_factory=list)


def describe(tokens: tuple[int, ...], request_ids: set[Hashable]) -> dict[str, Any]:
    """A node as a dict, without its children yet."""
    return {
        "tokens": list(tokens),
        "request_count": len(request_ids),
        "request_ids": sorted(request_ids, key=str),
        "children": [],
    }
