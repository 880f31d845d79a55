"""The pictures of notebook 02's exercises, drawn by running them on a few words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from yaie.course.exercises.nb02.trees import handed_over
from yaie.engine import radix

TEXT = "the cat sat on a mat and slept dog ran to it home again"
WORDS = TEXT.split(" ")
THE, CAT, SAT, ON, A, MAT, AND, SLEPT, DOG, RAN, TO, IT, HOME, AGAIN = range(len(WORDS))


def decode(tokens: Sequence[int]) -> str:
    """A vocabulary of fourteen words, for pictures that need no model."""
    return " ".join(WORDS[token] for token in tokens)


def draw_trie_matches(TokenTrie: type) -> Any:
    from yaie.course.viz import draw_tree, film_strip, snapshot_tree

    trie = TokenTrie()
    trie.insert_request("a", [THE, CAT, SAT])
    trie.insert_request("b", [THE, CAT, SLEPT])
    trie.insert_request("c", [A, DOG])
    states, titles = [], []
    for prompt in ([THE, CAT, RAN], [THE, CAT, SAT, AGAIN], [DOG, RAN]):
        ids, length = trie.find_shared_prefixes(prompt)
        states.append(snapshot_tree(trie, decode, matched=prompt[:length]))
        titles.append(f"“{decode(prompt)}”: {ids}, {length}")
    return film_strip(states, draw_tree, titles)


def film(states: list[Any], titles: list[str]) -> Any:
    from yaie.course.viz import draw_tree, film_strip

    return film_strip(states, partial(draw_tree, width=4.8), titles)


def draw_growing(RadixTree: type) -> Any:
    """Insertions and a match, all of them walked by the learner's `match`."""
    from yaie.course.viz import snapshot_tree

    tree = RadixTree()
    states, titles = [], []

    def record(title: str, matched: Sequence[int] = ()) -> None:
        states.append(snapshot_tree(tree, decode, matched))
        titles.append(title)

    tree.insert([THE, CAT, SAT, ON, A, MAT])
    record("insert “the cat sat on a mat”")
    prompt = [THE, CAT, SAT, AGAIN]
    found = tree.match(prompt)
    record(f"match “the cat sat again”: {found.length}", prompt[: found.length])
    tree.insert([THE, CAT, RAN, HOME])
    record("insert “the cat ran home”")
    prompt = [THE, CAT, RAN, TO, IT]
    found = tree.match(prompt)
    record(f"match “the cat ran to it”: {found.length}", prompt[: found.length])
    return film(states, titles)


def draw_split(RadixTree: type) -> Any:
    """One edge of three blocks, locked twice and used by two requests, cut after its first."""
    from yaie.course.viz import snapshot_tree

    tree = radix.RadixTree(block_size=2)
    tokens = [THE, CAT, SAT, ON, A, MAT]
    tree.insert(tokens, [7, 3, 9])
    for request_id in ("a", "b"):
        tree.insert_request(request_id, tokens)
        tree.lock(tree.match(tokens).node)
    tree = handed_over(tree, RadixTree)
    node = tree.match(tokens).node
    states = [snapshot_tree(tree, decode)]
    tree.split(node, 2)
    states.append(snapshot_tree(tree, decode))
    return film(states, ["one node", "split(node, 2)"])


def draw_evictions(RadixTree: type) -> Any:
    """Four blocks are asked for one after another; a locked leaf outlives a younger one."""
    from yaie.course.viz import snapshot_tree

    tree = radix.RadixTree()
    tree.insert([THE, CAT, SAT], [0, 1, 2])
    tree.insert([THE, CAT, RAN, HOME], [0, 1, 3, 4])
    tree.insert([A, DOG], [5, 6])
    tree.lock(tree.match([THE, CAT, SAT]).node)
    tree.match([A, DOG])
    tree = handed_over(tree, RadixTree)
    states, titles = [snapshot_tree(tree, decode)], ["before"]
    for count in (1, 2, 9):
        gone = sorted(tree.evict(count))
        states.append(snapshot_tree(tree, decode))
        titles.append(f"evict({count}) → {gone}")
    return film(states, titles)
