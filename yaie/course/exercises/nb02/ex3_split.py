"""02.3: what `RadixTree.split` moves, and what both halves keep."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb02 import pictures
from yaie.course.exercises.nb02.trees import (
    all_nodes,
    grown,
    handed_over,
    nodes_below,
    path_to,
    random_tokens,
    see_an_end,
    see_consistent,
    spelled,
    table,
    tree_picture,
)
from yaie.engine import radix


def cases() -> Iterator[Case]:
    edge = "an edge of the tokens 1 to 6 in blocks of 2, with two children and two locks"
    for cut in (2, 4):
        yield Case(edge, cut=cut, refused="")
    for cut, refused in (
        (0, "The upper half would be empty."),
        (6, "The lower half would be empty."),
        (8, "The edge has only 6 tokens."),
        (3, "A block of 2 would be cut in two."),
    ):
        yield Case(edge, cut=cut, refused=refused)
    generator = random.Random(0)
    for _ in range(60):
        size = generator.randrange(1, 4)
        trace = [random_tokens(generator, 6 * size) for _ in range(4)]
        trace += [(generator.randrange(1000), generator.randrange(1000)) for _ in range(3)]
        yield Case(in_words, trace=trace, block_size=size)


def in_words(case: Case) -> str:
    held = [step for step in case.trace if isinstance(step, list)]
    return f"a tree of block_size {case.block_size} that holds {held}"


def observe(RadixTree: type, case: Case, see: Observer) -> None:
    if case.trace is not None:
        observe_random(RadixTree, case, see)
    elif case.refused:
        tree, node = locked_tree(RadixTree)
        before = table(tree)
        call = f"split(node, {case.cut})"
        see.raises(call, ValueError, lambda: tree.split(node, case.cut), case.refused)
        see.equal(f"the tree after {call}", table(tree), before, "Test before you change anything.")
    else:
        observe_one(RadixTree, case.cut, see)


def locked_tree(RadixTree: type) -> tuple[Any, Any]:
    """An edge of three blocks with two children; "a" and "b" passed it, and two locks hold it."""
    tree = radix.RadixTree(block_size=2)
    tree.insert([1, 2, 3, 4, 5, 6, 7, 8], [10, 11, 12, 13])
    tree.insert_request("a", [1, 2, 3, 4, 5, 6, 7, 8])
    tree.insert_request("b", [1, 2, 3, 4, 5, 6, 9, 9])
    node = tree.match([1, 2, 3, 4, 5, 6]).node
    tree.lock(node)
    tree.lock(tree.match([1, 2, 3, 4, 5, 6, 7, 8]).node)
    return handed_over(tree, RadixTree), node


def observe_one(RadixTree: type, cut: int, see: Observer) -> None:
    """Split the locked edge, and look at both halves and all links between them."""
    tree, node = locked_tree(RadixTree)
    key, values, parent, time = node.key, list(node.values), node.parent, node.last_access
    held = node.values  # a Match holds this list, not a copy
    below = list(node.children)
    see.picture(tree_picture(tree))
    call = f"split(node, {cut})"
    with see.call(call):
        upper = tree.split(node, cut)
    see.kind(call, upper, radix.RadixNode)
    see.true(call, upper is not node, "returned the node it was given, expected a new upper node")
    see_an_end(see, call, ("lower node", node), ("upper node", upper))
    earlier = "A Match that found the edge holds this list: give the node a new one."
    see.equal(f"the list that node.values was before {call}", held, values, earlier)
    names = {id(parent): "parent", id(upper): "upper", id(node): "lower"}
    blocks = f"There is one value per block: {cut} tokens are {cut // 2} of 3 values."
    lead = "A child's label is the first block of its key."
    rest = "What followed the edge now follows its lower half."
    for half, other, above, own_key, own_values in (
        ("upper", upper, "parent", key[:cut], values[: cut // 2]),
        ("lower", node, "upper", key[cut:], values[cut // 2 :]),
    ):
        see.equal(f"the {half} node's key after {call}", spelled(other.key), spelled(own_key))
        see.equal(f"the {half} node's values after {call}", other.values, own_values, blocks)
        see.equal(f"the {half} node's parent after {call}", names.get(id(other.parent)), above)
    for above, other, want in (
        ("node above", parent, {key[:2]: "upper"}),
        ("upper node", upper, {key[cut : cut + 2]: "lower"}),
    ):
        got = {label: names.get(id(child), "another") for label, child in other.children.items()}
        got, want = ({spelled(k): name for k, name in labels.items()} for labels in (got, want))
        see.equal(f"the children of the {above} after {call}", got, want, lead)
    see.equal(f"the children of the lower node after {call}", list(node.children), below, rest)
    halves = f"of upper and lower node after {call}"
    locks = "Each lock holds the whole prefix."
    see.equal(f"the lock counts {halves}", (upper.lock_count, node.lock_count), (2, 2), locks)
    times = "A split does not use the prefix: both halves were last used when the edge was."
    see.equal(f"last_access {halves}", (upper.last_access, node.last_access), (time, time), times)
    passed = "Requests a and b passed the edge, so they passed both halves."
    both = {"a", "b"}
    got = upper.request_ids, node.request_ids
    see.equal(f"the request ids {halves}", got, (both, both), passed)
    shared = upper.request_ids is node.request_ids
    see.equal(f"whether one set has the ids {halves}", shared, False, "Each half needs its own.")
    see_consistent(see, tree, call)


def observe_random(RadixTree: type, case: Case, see: Observer) -> None:
    """Split any edges of a tree; what each block of the tree is has to stay the same."""
    size = case.block_size
    held = [step for step in case.trace if isinstance(step, list)]
    tree = grown(RadixTree, *held, block_size=size)

    def facts(node: Any) -> tuple:
        return node.lock_count, node.last_access

    for choice, where in (step for step in case.trace if isinstance(step, tuple)):
        wide = [node for _, _, node in all_nodes(tree) if len(node.key) > size]
        if not wide:
            return
        node = wide[choice % len(wide)]
        cut = size * (1 + where % (len(node.key) // size - 1))
        call = f"split(the node at {path_to(node)}, {cut})"
        tree.lock(node)
        before = table(tree, facts)
        see.picture(tree_picture(tree))
        with see.call(call):
            tree.split(node, cut)
        every = [below for root in tree.roots.values() for below in (root, *nodes_below(root))]
        see_an_end(see, call, *((f"node with key {spelled(below.key)}", below) for below in every))
        kept = "A split changes no block."
        what = f"value, locks and time of each block after {call}"
        see.equal(what, table(tree, facts), before, kept)
        see_consistent(see, tree, call)
        see.stop_if_wrong()  # `path_to` would not end if a node were above itself


draw = pictures.draw_split
