"""02.2: what `RadixTree.match` returns, and what it leaves behind."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02 import pictures
from yaie.course.exercises.nb02.trees import (
    DEEP,
    all_nodes,
    deep_tree,
    handed_over,
    path_to,
    random_tokens,
    see_consistent,
    table,
    tree_picture,
)
from yaie.course.exercises.oracles import PrefixOracle
from yaie.engine import radix

ONE, TWO = [1, 2, 3, 4], [1, 2, 5, 6]
SIX = [1, 2, 3, 4, 5, 6]


def cases() -> Iterator[Case]:
    yield planned(1, [], [7, 8])
    for prompt in (ONE, [1, 2, 9], [1, 2], [*ONE, 5, 6], [8, 1, 2], []):
        yield planned(1, [ONE], prompt)
    for prompt in (TWO, [1, 2, 5, 9], [1, 2, 7], [1, 9]):
        yield planned(1, [ONE, TWO], prompt)
    for prompt in (SIX, [1, 2, 3, 4, 9, 9], [1, 2, 3, 9], [1, 2, 3], [1], [1, 9, 3, 4]):
        yield planned(2, [SIX], prompt)
    for space in ("adapter", "", "unseen"):
        held = [([1, 2], "adapter"), ([1, 3], "")]
        yield Case(
            "a tree that holds [1, 2] in namespace 'adapter' and [1, 3] in ''",
            block_size=1, held=held, prompt=[1, 2], namespace=space, depth=0,
        )  # fmt: skip
    yield Case(f"a path of {DEEP:,} nodes", depth=DEEP)
    generator = random.Random(0)
    for _ in range(60):
        turns = []
        for _ in range(8):
            tokens, space = random_tokens(generator, 12), generator.choice(("", "", "adapter"))
            prompt = tokens[: generator.randrange(13)] + random_tokens(generator, 4)
            turns.append((tokens, prompt, space))
        yield Case(in_words, trace=turns, block_size=generator.randrange(1, 4))


def planned(block_size: int, sequences: list[list[int]], prompt: list[int]) -> Case:
    blocks = f" of block_size {block_size}" if block_size > 1 else ""
    name = f"a tree{blocks} that holds {' and '.join(map(str, sequences))}"
    held = [(tokens, "") for tokens in sequences]
    name = name if sequences else "an empty tree"
    return Case(name, block_size=block_size, held=held, prompt=prompt, namespace="", depth=0)


def in_words(case: Case) -> str:
    turns = [f"insert {tokens}, match {prompt}" for tokens, prompt, _ in case.trace]
    return f"a tree of block_size {case.block_size}, after {'; '.join(turns)}"


def observe(RadixTree: type, case: Case, see: Observer) -> None:
    if case.trace is None and case.depth:
        tree, oracle = deep_tree(case.depth)
        return observe_match(see, handed_over(tree, RadixTree), oracle, [1] * case.depth, "")
    oracle = PrefixOracle(case.block_size)
    if case.trace is None:
        tree = radix.RadixTree(case.block_size)
        for number, (tokens, space) in enumerate(case.held):
            values = [100 * number + block for block in range(len(tokens))]
            tree.insert(tokens, values, space)
            oracle.insert(tokens, values, space)
        observe_match(see, handed_over(tree, RadixTree), oracle, case.prompt, case.namespace)
        return
    tree = RadixTree(case.block_size)
    for turn, (tokens, prompt, space) in enumerate(case.trace):
        values = [100 * turn + block for block in range(len(tokens))]
        with see.call(f"insert({tokens}), which calls match"):
            tree.insert(tokens, values, space)
        oracle.insert(tokens, values, space)
        observe_match(see, tree, oracle, prompt, space)


def observe_match(
    see: Observer, tree: Any, oracle: PrefixOracle, prompt: list[int], namespace: str
) -> None:
    """Call `match`, and look at all that it returns and leaves behind."""
    times = {(name, tokens): node.last_access for name, tokens, node in all_nodes(tree)}
    clock = max(times.values(), default=0)
    want = oracle.match(prompt, namespace)
    matched = prompt[: len(want) * tree.block_size]
    call = f"match({short_list(prompt)}{f', {namespace!r}' if namespace else ''})"
    see.picture(tree_picture(tree, matched) if len(times) < 50 else None)
    with see.call(call):
        found = tree.match(list(prompt), namespace) if namespace else tree.match(list(prompt))
    see.kind(call, found, radix.Match)
    blocks = f"The first {len(matched)} tokens agree in whole blocks of {tree.block_size}."
    see.equal(f"the length of {call}", found.length, len(matched), blocks)
    per_block = "One value for each block that matched, from the root down."
    see.equal(f"the values of {call}", list(found.values), want, per_block)
    ends = "The returned node must end exactly where the match does."
    path = path_to(found.node)
    see.equal(f"the tokens from the root to the node of {call}", path, matched, ends)
    observe_root(see, found.node, tree, namespace, call)
    observe_times(see, found.node, tree, call, clock, times)
    held = f"what the tree holds after {call}"
    kept = "match removes nothing, and changes no value."
    see.equal(held, table(tree), oracle.value, kept)
    see_consistent(see, tree, call)


def observe_root(see: Observer, node: Any, tree: Any, namespace: str, call: str) -> None:
    top, root = node, tree.roots.get(namespace)
    while getattr(top, "parent", None) is not None:
        top = top.parent
    right = top is root or (root is None and getattr(top, "namespace", None) == namespace)
    see.true(f"the node of {call}", right, "is not below the root of its namespace")


def observe_times(
    see: Observer, node: Any, tree: Any, call: str, clock: int, times: dict[tuple, int]
) -> None:
    """Which nodes have a new `last_access`: those on the path to the returned node, no others."""
    on_path = set()
    while getattr(node, "parent", None) is not None:
        on_path.add(id(node))
        node = node.parent
    new = {
        short_list(list(path))
        for space, path, other in all_nodes(tree)
        if other.last_access > clock or other.last_access != times.get((space, path), clock)
    }
    want = {short_list(list(path)) for _, path, other in all_nodes(tree) if id(other) in on_path}
    fresh = "A match uses every node on its path, and no other: eviction goes by these times."
    what = f"the list of paths with a new last_access after {call}"
    see.equal(what, sorted(new), sorted(want), fresh)
    ahead = any(other.last_access > tree._clock for _, _, other in all_nodes(tree))
    ticks = "`self._tick()` gives the tree's own time: later insertions take theirs from it."
    problem = "has a last_access ahead of the tree's clock"
    see.true(f"a node on the path of {call}", not ahead, problem, ticks)
    stamps = len({other.last_access for _, _, other in all_nodes(tree) if id(other) in on_path})
    one = "All of them are used by one call: they get its time."
    see.at_most(f"the number of different times on the path of {call}", stamps, 1, one)


def short_list(tokens: list[int]) -> str:
    return str(tokens) if len(tokens) < 20 else f"{len(tokens):,} tokens"


draw = pictures.draw_growing
