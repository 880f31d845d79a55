"""02.4: what `RadixTree.evict` may take, and in which order."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02 import pictures
from yaie.course.exercises.nb02.trees import (
    DEEP,
    deep_tree,
    handed_over,
    random_tokens,
    see_consistent,
    table,
    tree_picture,
)
from yaie.course.exercises.oracles import PrefixOracle


def cases() -> Iterator[Case]:
    a, b, c = [1, 2, 3], [7, 8], [1, 2, 4]
    yield planned(("insert", a), ("insert", b), ("evict", 0))
    yield planned(("insert", a), ("insert", b), ("evict", 2))
    yield planned(("insert", a), ("insert", b), ("match", a), ("evict", 1))
    yield planned(("insert", a), ("lock", a), ("insert", b), ("evict", 2))
    yield planned(("insert", a), ("lock", a), ("insert", b), ("lock", b), ("evict", 1))
    yield planned(("insert", a), ("insert", c), ("match", c), ("match", a), ("evict", 2))
    yield planned(("insert", a), ("insert", c), ("evict", 4))
    yield planned(("insert", a), ("insert", b), ("evict", 9))
    yield planned(("insert", a), ("insert", [1, 2]), ("evict", 1))
    yield planned(("insert", [1, 2, 3, 4, 5, 6]), ("evict", 1), block_size=2)
    yield planned(("insert", [5, 6], "adapter"), ("insert", [5, 7]), ("evict", 3))
    yield Case(f"a path of {DEEP:,} nodes", depth=DEEP)
    generator = random.Random(0)
    for _ in range(40):
        size, trace = generator.randrange(1, 4), []
        for turn in range(25):
            tokens, space = random_tokens(generator, 9), generator.choice(("", "", "adapter"))
            action = generator.choice(("insert", "insert", "match", "lock", "unlock", "evict"))
            about = generator.randrange(5) if action in ("unlock", "evict") else tokens
            trace.append((action, about, space, 100 * turn))
        yield Case(in_words, trace=trace, block_size=size)


def planned(*steps: tuple, block_size: int = 1) -> Case:
    """A trace as `cases` spells it: action, what about, and for namespaces other than "", that."""
    trace = [(*step[:2], *(step[2:] or [""]), 100 * turn) for turn, step in enumerate(steps)]
    return Case(in_words, trace=trace, block_size=block_size)


def in_words(case: Case) -> str:
    steps = [
        f"{action} {about}{f' in {space!r}' if space else ''}"
        for action, about, space, _ in case.trace
        if action in ("insert", "match", "lock")
    ]
    size = f"of block_size {case.block_size}"
    return f"a tree {size}, after {'; '.join(steps)}" if steps else f"an empty tree {size}"


def observe(RadixTree: type, case: Case, see: Observer) -> None:
    if case.trace is None:
        tree, oracle = deep_tree(case.depth)
        observe_evict(see, handed_over(tree, RadixTree), oracle, 3)
        return
    tree, oracle, locked = RadixTree(case.block_size), PrefixOracle(case.block_size), []
    for action, about, space, value in case.trace:
        if action == "insert":
            values = [value + block for block in range(len(about))]
            tree.insert(about, values, space)
            oracle.insert(about, values, space)
        elif action in ("match", "lock"):
            found = tree.match(about, space)
            oracle.match(about, space)
            if action == "lock":
                tree.lock(found.node)
                path = space, tuple(about[: found.length])
                locked.append((found.node, path))
                oracle.lock(path)
        elif action == "unlock" and locked:
            node, path = locked.pop(about % len(locked))
            tree.unlock(node)
            oracle.lock(path, -1)
        elif action == "evict":
            observe_evict(see, tree, oracle, about)
        if action != "evict":
            see.equal(f"what the tree holds after {action}", table(tree), oracle.value)
            see_consistent(see, tree, action)


def observe_evict(see: Observer, tree: Any, oracle: PrefixOracle, count: int) -> None:
    """Call `evict`, and look at what it returns and leaves behind."""
    see.picture(tree_picture(tree) if tree.num_nodes < 50 else None)
    call = f"evict({count})"
    with see.call(call):
        got = tree.evict(count)
    see.kind(call, got, list)
    oldest = "These lie at the ends of the unlocked leaves with the smallest `last_access`."
    see.equal(f"{call}, sorted,", sorted(got), sorted(oracle.evict(count)), oldest)
    gone = "What was returned must be gone, and nothing else."
    see.equal(f"what is left after {call}", table(tree), oracle.value, gone)
    see_consistent(see, tree, call)


draw = pictures.draw_evictions
