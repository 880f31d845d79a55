"""A radix tree as arrays, for a machine that has no dictionaries: a batch of prompts looks it up.

Nodes are numbered level by level from the root, node 0, and the children of a node one after the
other, in the order of their keys. So a node needs no list of its children, only the number of the
first: they end where the next node's begin. The keys lie end to end, and so do the values.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import torch

from yaie.engine.radix import shared_prefix_length

NO_VALUE = -1


@dataclass(frozen=True)
class FlatTree:
    """The nodes of one namespace of a `RadixTree`, as they were when it was flattened.

    Attributes:
        block_size: tokens of a block; keys and matches are whole blocks.
        tokens: int32, the keys of all nodes end to end.
        starts: int32 `[nodes + 1]`; node i's key is `tokens[starts[i] : starts[i + 1]]`, and its
            values begin at `values[starts[i] / block_size]`.
        children: int32 `[nodes + 1]`; node i's children are the nodes from `children[i]` to
            `children[i + 1] - 1`, in the order of their keys.
        values: int32, one for each block of `tokens`.
        nodes: the tree's own nodes, by number.
    """

    block_size: int
    tokens: torch.Tensor
    starts: torch.Tensor
    children: torch.Tensor
    values: torch.Tensor
    nodes: tuple[Any, ...]

    @property
    def arrays(self) -> tuple[torch.Tensor, ...]:
        """tokens, starts, children, values."""
        return self.tokens, self.starts, self.children, self.values

    def to(self, device: str | torch.device) -> FlatTree:
        """The same on another device."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {name: x for name, x in named.items() if isinstance(x, torch.Tensor)}
        return replace(self, **{name: x.to(device) for name, x in tensors.items()})


def match_prefixes(
    prompts: torch.Tensor,
    cu_seqlens: torch.Tensor,
    tokens: torch.Tensor,
    starts: torch.Tensor,
    children: torch.Tensor,
    values: torch.Tensor,
    block_size: int,
    max_blocks: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find the longest prefix of each prompt, in whole blocks, that a flat tree holds.

    What `RadixTree.match` finds, but no edge is split and no time is stamped.

    Args:
        prompts: int32, the tokens of all prompts end to end.
        cu_seqlens: int32 `[batch + 1]`, where each begins, and the end of the last.
        tokens, starts, children, values, block_size: of a `FlatTree`.
        max_blocks: how many blocks of a prompt are looked up at most.

    Returns:
        int32 `[batch]`, the tokens found of each prompt; int32 `[batch]`, the node in which the
        match ends, at its last token or before; int32 `[batch, max_blocks]`, the values found, and
        -1 in the rest of the row.
    """
    edges, starts, children, values = (x.tolist() for x in (tokens, starts, children, values))
    prompts, bounds = prompts.tolist(), cu_seqlens.tolist()
    lengths, nodes, tables = [], [], []
    for begin, end in pairwise(bounds):
        whole = min((end - begin) // block_size, max_blocks) * block_size
        prompt = prompts[begin : begin + whole]
        node, length, table = 0, 0, []
        while (child := _child(node, prompt[length:][:block_size], edges, starts, children)) > 0:
            node, first = child, starts[child]
            shared = shared_prefix_length(edges[first : starts[child + 1]], prompt[length:])
            shared -= shared % block_size
            table += values[first // block_size : (first + shared) // block_size]
            length += shared
            if first + shared < starts[child + 1]:
                break
        lengths.append(length)
        nodes.append(node)
        tables.append(table + [NO_VALUE] * (max_blocks - len(table)))
    as_int32 = {"dtype": torch.int32, "device": cu_seqlens.device}
    return (
        torch.tensor(lengths, **as_int32),
        torch.tensor(nodes, **as_int32),
        torch.tensor(tables, **as_int32).view(len(lengths), max_blocks),
    )


def _child(
    node: int, block: list[int], edges: list[int], starts: list[int], children: list[int]
) -> int:
    """The child of a node whose key begins with a block; 0 if there is none, or no block."""
    for child in range(children[node], children[node + 1]):
        if block and edges[starts[child] : starts[child] + len(block)] == block:
            return child
    return 0
