"""The pictures of notebook 02's exercises, drawn by running them on a few words."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from yaie.course import viz
from yaie.course.exercises.nb02.trees import handed_over
from yaie.engine import radix

TEXT = "the cat sat on a mat and slept dog ran to it home again"
WORDS = TEXT.split(" ")
THE, CAT, SAT, ON, A, MAT, AND, SLEPT, DOG, RAN, TO, IT, HOME, AGAIN = range(len(WORDS))


def decode(tokens: Sequence[int]) -> str:
    """A vocabulary of fourteen words, for pictures that need no model."""
    return " ".join(WORDS[token] for token in tokens)


def draw_trie_matches(TokenTrie: type) -> Any:
    trie = TokenTrie()
    trie.insert_request("a", [THE, CAT, SAT])
    trie.insert_request("b", [THE, CAT, SLEPT])
    trie.insert_request("c", [A, DOG])
    states = {}
    for prompt in ([THE, CAT, RAN], [THE, CAT, SAT, AGAIN], [DOG, RAN]):
        ids, length = trie.find_shared_prefixes(prompt)
        title = f"“{decode(prompt)}”: {ids}, {length}"
        states[title] = viz.snapshot_tree(trie, decode, matched=prompt[:length])
    return viz.film_strip([*states.values()], viz.draw_tree, [*states])


def film(states: dict[str, Any]) -> Any:
    """A film strip of trees, by title."""
    return viz.film_strip([*states.values()], partial(viz.draw_tree, width=4.8), [*states])


def draw_growing(RadixTree: type) -> Any:
    """Insertions and a match, all of them walked by the learner's `match`."""
    tree = RadixTree()
    states = {}
    for text, prompt in (
        ([THE, CAT, SAT, ON, A, MAT], [THE, CAT, SAT, AGAIN]),
        ([THE, CAT, RAN, HOME], [THE, CAT, RAN, TO, IT]),
    ):
        tree.insert(text)
        states[f"insert “{decode(text)}”"] = viz.snapshot_tree(tree, decode)
        length = tree.match(prompt).length
        title = f"match “{decode(prompt)}”: {length}"
        states[title] = viz.snapshot_tree(tree, decode, prompt[:length])
    return film(states)


def draw_split(RadixTree: type) -> Any:
    """One edge of three blocks, locked twice and used by two requests, cut after its first."""
    tree = radix.RadixTree(block_size=2)
    tokens = [THE, CAT, SAT, ON, A, MAT]
    tree.insert(tokens, [7, 3, 9])
    for request_id in ("a", "b"):
        tree.insert_request(request_id, tokens)
        tree.lock(tree.match(tokens).node)
    tree = handed_over(tree, RadixTree)
    node = tree.match(tokens).node
    states = {"one node": viz.snapshot_tree(tree, decode)}
    tree.split(node, 2)
    states["split(node, 2)"] = viz.snapshot_tree(tree, decode)
    return film(states)


def draw_evictions(RadixTree: type) -> Any:
    """Four blocks are asked for one after another; a locked leaf outlives a younger one."""
    tree = radix.RadixTree()
    tree.insert([THE, CAT, SAT], [0, 1, 2])
    tree.insert([THE, CAT, RAN, HOME], [0, 1, 3, 4])
    tree.insert([A, DOG], [5, 6])
    tree.lock(tree.match([THE, CAT, SAT]).node)
    tree.match([A, DOG])
    tree = handed_over(tree, RadixTree)
    states = {"before": viz.snapshot_tree(tree, decode)}
    for count in (1, 2, 9):
        gone = sorted(tree.evict(count))
        states[f"evict({count}) → {gone}"] = viz.snapshot_tree(tree, decode)
    return film(states)
