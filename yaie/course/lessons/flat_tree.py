"""The arrays of a radix tree; `yaie.course.lessons.ops.reference.radix` says what is in them."""

import torch

from yaie.course.lessons.ops.reference.radix import NO_VALUE, FlatTree
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixNode, RadixTree
from yaie.engine.radix_node import as_token_ids


def flatten(tree: RadixTree | RadixCache, namespace: str = "") -> FlatTree:
    """The arrays of a tree's namespace.

    The tree does not change, and what becomes of it later does not change the arrays. A value of
    None becomes -1; any other must be an integer of 32 bits.
    """
    tree = tree.tree if isinstance(tree, RadixCache) else tree
    nodes = [tree.roots.get(namespace) or RadixNode("", [], None, namespace)]
    starts, children, tokens, values = [0], [], [], []
    for node in nodes:  # grows meanwhile
        children.append(len(nodes))
        nodes.extend(child for _, child in sorted(node.children.items()))
        tokens.extend(as_token_ids(node.key))
        values.extend(NO_VALUE if value is None else value for value in node.values)
        starts.append(len(tokens))
    children.append(len(nodes))
    arrays = (torch.tensor(x, dtype=torch.int32) for x in (tokens, starts, children, values))
    return FlatTree(tree.block_size, *arrays, tuple(nodes))
