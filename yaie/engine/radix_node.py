"""The nodes of a radix tree, what a search in it finds, and the form in which it holds tokens."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

UTF_32 = f"utf-32-{sys.byteorder[0]}e"  # without a byte order mark, which would be token 65,279


def as_key(token_ids: Sequence[int] | str) -> str:
    """Tokens as a string, one character per token: character `i` is `chr(token_ids[i])`.

    A string lies in memory as an array of 1, 2 or 4 bytes per token, and slicing, hashing and
    comparing it are loops in C over that array. A tuple holds a pointer to an object per token.

    Args:
        token_ids: ints from 0 to 1,114,111, the largest code point, in a list, an array or a
            tensor `[tokens]`; or a key, which is returned as it is.

    Raises ValueError or TypeError for anything else.

    >>> as_key([72, 105])
    'Hi'
    """
    if isinstance(token_ids, str):
        return token_ids
    if isinstance(token_ids, bytes | bytearray):  # `array` would take them for memory
        raise TypeError(f"token_ids must be ints, got {type(token_ids).__name__}")
    try:
        numbers = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        return array("I", numbers).tobytes().decode(UTF_32, "surrogatepass")
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        limit = f"ints from 0 to {sys.maxunicode:,} in one dimension"
        raise kind(f"token_ids must be {limit}: {error}") from None


def as_token_ids(key: str) -> list[int]:
    """The tokens that a key stands for."""
    return list(map(ord, key))


@dataclass(slots=True, eq=False)
class RadixNode:
    """A run of tokens that no other sequence has split yet.

    Attributes:
        key: the tokens on the edge from `parent` to this node, as `as_key` makes it.
        values: one value for every `block_size` tokens of `key`.
        children: by the first block of the child's key.
        lock_count: how many users need this node to stay. A parent's is never below its child's.
        last_access: time of the last match or insertion that passed here, on the tree's clock.
        request_ids: requests that begin with the tokens from the root down to here.
        namespace: of a root, the namespace that it holds.
    """

    key: str
    values: list[Any]
    parent: RadixNode | None
    namespace: str = ""
    children: dict[str, RadixNode] = field(default_factory=dict)
    lock_count: int = 0
    last_access: int = 0
    request_ids: set[Hashable] = field(default_factory=set)
    in_heap: bool = False

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
    """What a tree holds of a sequence: its first `length` tokens, ending exactly at `node`.

    `runs` has the values of each node on the way.
    """

    node: RadixNode
    length: int = 0
    runs: list[list[Any]] = field(default_factory=list)

    @cached_property
    def values(self) -> list[Any]:
        """One value for each block. They are joined when first asked for: most searches, such as
        those that insert, need none."""
        values: list[Any] = []
        for run in self.runs:
            values += run
        return values


def describe(tokens: Sequence[int], request_ids: set[Hashable]) -> dict[str, Any]:
    """A node as a dict, without its children yet."""
    return {
        "tokens": list(tokens),
        "request_count": len(request_ids),
        "request_ids": sorted(request_ids, key=str),
        "children": [],
    }
