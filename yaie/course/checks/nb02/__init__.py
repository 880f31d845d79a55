"""Exercises of notebook 02: a token trie's lookup, and a radix tree's match, split and evict."""

from __future__ import annotations

from yaie.course.checks.nb02.evict import check_evict
from yaie.course.checks.nb02.pictures import (
    draw_evictions,
    draw_split,
    draw_trie_matches,
)
from yaie.course.checks.nb02.split import check_split
from yaie.course.checks.nb02.trie import check_find_shared_prefixes
from yaie.course.core.manifest import Exercise

NOTEBOOK = "02_radix_tree"

EXERCISES = [
    Exercise(
        id="02.1",
        notebook=NOTEBOOK,
        slug="find_shared_prefixes",
        title="Find who begins like this prompt, in a trie",
        target="yaie.course.lessons.trie:TokenTrie.find_shared_prefixes",
        task=(
            "A trie holds the prompts of several requests, one node a token. Walk down as far as "
            "a new prompt agrees with it, and return the ids of the requests that got there too, "
            "and how many tokens that is."
        ),
        difficulty=1,
        minutes=8,
        hints=(
            "Begin at the root and follow the prompt, one token and one node at a time, until "
            "there is no child for the next token. Where you stand then is the answer.",
            "Before each step, `length` tokens have matched and `node` is where they end; every "
            "id in `node.request_ids` belongs to a request that begins with exactly those tokens. "
            "The root is the prefix of no tokens, so every request is in its set: that is why "
            "length 0 is a case of its own.",
            "Start with `node, length = self.root, 0`. Then:\n\n"
            "    for token in token_ids:\n"
            "        if ...:          # no child of that token\n"
            "            break\n"
            "        ...              # one node down, one token more\n\n"
            "After the loop, length 0 gives `[], 0`. Otherwise return "
            "`sorted(node.request_ids, key=str)` and the length.",
        ),
        proves=(
            "It agrees with brute force over all requests on 210 tries, and a lookup adds no node."
        ),
        check=check_find_shared_prefixes,
        picture=draw_trie_matches,
    ),
    Exercise(
        id="02.3",
        notebook=NOTEBOOK,
        slug="split",
        title="Split an edge and lose nothing",
        target="yaie.engine.radix:RadixTree.split",
        task=(
            "Cut the edge into `node` in two. Make a new upper node for the first `num_tokens` "
            "tokens and hang `node`, with the rest, below it. Locks, request ids and access time "
            "hold for both halves. `RadixNode(key, values, parent)` makes a node."
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Draw it: parent, edge, node become parent, edge, upper, edge, node. Two links that "
            "lead down change, and two that lead up. Everything that the old node knew about the "
            "whole edge is true of both halves.",
            "Before and after, every block of the tree has the same value, the same lock count, "
            "the same time and the same requests; only the number of nodes grew. `node` ends "
            "where it did: a request that holds it as its handle notices nothing. A child's label "
            "is the first block of its key, so when the key changes, the label does.",
            "Refuse first: a `num_tokens` that is not strictly inside the key, or no multiple of "
            "`self.block_size`. Then make `upper` from the first part of `node.key` and "
            "`node.values`. How many values are `num_tokens` tokens?\n\n"
            "    upper.lock_count = ...\n"
            "    upper.last_access = ...\n"
            "    upper.request_ids = ...      # a set of its own\n"
            "    node.parent.children[...] = upper\n"
            "    node.key, node.values = ..., ...\n"
            "    node.parent = upper\n"
            "    upper.children[...] = node\n\n"
            "Count the node, and return the upper one.",
        ),
        proves=(
            "No block lost its value, locks, requests or access time, in any of the splits tried; "
            "a cut through a block or outside the edge is refused."
        ),
        check=check_split,
        picture=draw_split,
        part="radix_tree",
    ),
    Exercise(
        id="02.4",
        notebook=NOTEBOOK,
        slug="evict",
        title="Evict what was used longest ago",
        target="yaie.engine.radix:RadixTree.evict",
        task=(
            "Remove up to `num_values` values: again and again the tail of the leaf that has no "
            "lock and the smallest `last_access`. Find that leaf by walking the tree from "
            "`self.roots.values()`. `self._cut(leaf, keep)` shortens a leaf to its first `keep` "
            "values, or removes it, and keeps the counts. (The reference asks "
            "`self._oldest_leaf()`, which has them in a heap. Read it when yours passes.)"
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Nobody can need a block whose prefix is gone, so eviction gnaws at the ends: it "
            "takes leaves, and of a leaf its tail. When the last child of a node goes, the node "
            "itself becomes a leaf and is next in the queue.",
            "After every single removal, what is left is still a tree of prefixes without gaps, "
            "and every locked node is still in it. So choose anew after every removal: among all "
            "nodes that have a parent, no children and a lock count of 0, the smallest "
            "`last_access`. If there is none, stop: waiting in the loop unlocks nothing.",
            "With `evicted` as the list to return:\n\n"
            "    while len(evicted) < num_values:\n"
            "        leaves = ...             # walk with a stack; roots are no leaves\n"
            "        if not leaves:\n"
            "            break\n"
            "        leaf = min(leaves, key=...)\n"
            "        keep = ...               # how many of its values may stay, at least 0\n"
            "        evicted.extend(leaf.values[keep:])\n"
            "        self._cut(leaf, keep)",
        ),
        proves=(
            "In 40 random traces it took the same values as a table of every prefix did, and "
            "never a locked one, never one that another stands on."
        ),
        check=check_evict,
        picture=draw_evictions,
        part="radix_tree",
    ),
]
