"""The check of 19.3: a walk down a tree in arrays, against the sequences it was made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb19.scan import ints
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding
    from yaie.ops.reference.radix import FlatTree

Sequences = list[list[int]]

# What the tree holds, the prompts, block size, max_blocks
SMALL = (
    ([[1, 2, 3, 4], [1, 2, 7, 8], [5, 6]], [[1, 2, 7, 8, 9], [5, 6], [9, 9], [1, 2]], 2, 3),
    # Each prompt goes on in the next as the tree does; the first ends inside an edge.
    ([[1, 2, 3, 4, 5, 6], [5, 6, 1, 2]], [[1, 2, 3, 4], [5, 6], [1, 2, 3, 9], [5, 6, 1]], 2, 2),
    # After the first edge, which fits in part only, a child would fit.
    ([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]], [[1, 2, 5, 6], [1, 2, 3, 4, 7, 8]], 2, 4),
    ([[1, 2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]], 2, 2),
    ([], [[1, 2], []], 1, 2),
)


def check_lookup(path: Path) -> None:
    def values(order: str) -> None:
        for scene in SMALL:
            run(path, *scene, order)

    on_every_schedule(values)
    for seed in range(8):
        run(path, *drawn(seed), "forward")


def drawn(seed: int) -> tuple[Sequences, Sequences, int, int]:
    """Sequences that share beginnings, and prompts that begin like them."""
    draw = random.Random(seed)
    block_size = draw.choice([1, 2, 4])
    known: Sequences = []

    def one(most: int) -> list[int]:
        begin = draw.choice(known)[: draw.randrange(30)] if known and draw.random() < 0.8 else []
        return [*begin, *(draw.randrange(3) for _ in range(draw.randrange(most)))]

    for _ in range(12):
        known.append(one(20))
    prompts = [one(8) for _ in range(70)]  # more than a thread block's threads
    return known, prompts, block_size, max(len(prompt) // block_size for prompt in prompts)


def flat_tree(known: Sequences, block_size: int) -> FlatTree:
    from yaie.engine.flat_tree import flatten
    from yaie.engine.radix import RadixTree

    tree = RadixTree(block_size)
    for number, sequence in enumerate(known):
        tree.insert(sequence, range(100 * number, 100 * number + len(sequence) // block_size))
    return flatten(tree)


def run(
    path: Path, known: Sequences, prompts: Sequences, block_size: int, max_blocks: int, order: str
) -> None:
    flat = flat_tree(known, block_size)
    small = len(prompts) < 10
    tree = f"a tree of {known}" if small else f"a tree of {len(known)} sequences"
    asked = f"prompts {prompts}" if small else f"{len(prompts)} prompts"
    bounds = [0]
    for prompt in prompts:
        bounds.append(bounds[-1] + len(prompt))
    tokens = ints([token for prompt in prompts for token in prompt])
    out = outputs(len(prompts), max_blocks)
    with given(
        f"{tree}, blocks of {block_size}, {asked}, max_blocks {max_blocks}, in {order} order"
    ):
        launch(
            path, "match_simple_i32", tokens, ints(bounds), *flat.arrays, *out,
            len(prompts), block_size, max_blocks, explain=EXPLAIN, order=order,
        )  # fmt: skip
        compare(known, prompts, flat, max_blocks, *(x.tolist() for x in out))


def outputs(count: int, max_blocks: int) -> list[Any]:
    dtype = ints([]).dtype
    return [poisoned(*shape, dtype=dtype) for shape in ((count,), (count,), (count, max_blocks))]


def compare(known, prompts, flat: FlatTree, max_blocks: int, lengths, nodes, rows) -> None:
    size = flat.block_size
    cut = [prompt[: min(len(prompt) // size, max_blocks) * size] for prompt in prompts]
    wanted = [max((common(p, k) // size * size for k in known), default=0) for p in cut]
    tokens, bounds = ends_to_end(prompts)
    beyond = [tokens[begin:] for begin in bounds]  # a prompt and all that lies behind it
    because = "It is the longest beginning of the prompt that some sequence has, in whole blocks."
    equal(lengths, wanted, "lengths", because=because, mistakes=[
        ([walk(flat, p, "whole edges") for p in cut], "The walk stopped at a node's boundary: "
         "part of an edge counts too."),
        ([max((common(p, k) for k in known), default=0) for p in cut], "These are tokens; whole "
         "blocks are kept and shared, so round down to a multiple of block_size."),
        ([walk(flat, p, "first child") for p in cut], "Only the first child was looked at: node's "
         "children are children[node] … children[node + 1] - 1."),
        ([walk(flat, p, "goes on") for p in cut], "An edge that fits in part only is where the "
         "walk ends: what hangs below it comes after the part that did not fit."),
        ([max((common(p, k) // size * size for k in known), default=0) for p in beyond],
         "The walk read on into the next prompt: this one ends at `whole` tokens."),
        ([0] * len(cut), "Nothing was found at all."),
    ])  # fmt: skip
    least = poisoned(1, dtype=ints([]).dtype).item()
    for p, (length, row) in enumerate(zip(wanted, rows, strict=True)):
        values = [value_of(known, prompts[p][: i + size], size) for i in range(0, length, size)]
        because = (
            "Block i of a node's key has the value values[starts[node] / block_size + i]: there "
            "is one for each block, not for each token."
        )
        if row[: len(values)] == values:
            because = "Behind the blocks that were found, a row is -1 to its end."
        elif least in row[: len(values)]:
            because = f"{least} was there before: nobody wrote it."
        full = values + [-1] * (max_blocks - len(values))
        equal(row, full, f"row {p} of the table", because=because)
    for p, (node, length) in enumerate(zip(nodes, wanted, strict=True)):
        if not 0 <= node < len(flat.nodes) or not ends_inside(flat, node, prompts[p], length):
            right = next(n for n in range(len(flat.nodes))
                         if ends_inside(flat, n, prompts[p], length))  # fmt: skip
            fail(
                f"nodes[{p}] should be {right}, got {node}. It is the node in whose key the match "
                f"of {length} tokens ends; 0, the root, if nothing was found."
            )


def ends_to_end(prompts: Sequences) -> tuple[list[int], list[int]]:
    """All tokens, and where each prompt begins."""
    tokens, begins = [], []
    for prompt in prompts:
        begins.append(len(tokens))
        tokens += prompt
    return tokens, begins


def common(one: Sequence[int], other: Sequence[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def value_of(known: Sequences, prefix: list[int], size: int) -> int:
    """The value of the last block of a prefix: whoever brought it first."""
    number = next(i for i, k in enumerate(known) if k[: len(prefix)] == prefix)
    return 100 * number + len(prefix) // size - 1


def ends_inside(flat: FlatTree, number: int, prompt: list[int], length: int) -> bool:
    """Whether the first `length` tokens of a prompt end in the key of a node."""
    node, path = flat.nodes[number], []
    above = node
    while above is not None:
        path, above = [*above.key, *path], above.parent
    if length == 0:
        return number == 0
    return path[:length] == prompt[:length] and len(path) - len(node.key) < length <= len(path)


def walk(flat: FlatTree, prompt: list[int], mistake: str) -> int:
    """The length that a walk with one mistake finds."""
    size, node, length = flat.block_size, flat.nodes[0], 0
    while True:
        below = sorted(node.children.items())
        if mistake == "first child":
            below = below[:1]
        block = tuple(prompt[length : length + size])
        child = next((child for key, child in below if key == block), None)
        if child is None:
            return length
        shared = common(child.key, prompt[length:]) // size * size
        if shared < len(child.key) and mistake != "goes on":
            return length + (0 if mistake == "whole edges" else shared)
        length, node = length + shared, child


def _outside(found: Finding) -> str:
    told = {
        "table": "A row of the table has max_blocks places: stop when so many blocks are found.",
        "tokens": "A prompt ends at `whole` tokens: compare no further.",
        "edges": "A node's key ends where the next one's begins, at starts[node + 1].",
        "values": "There is one value for each block, not for each token: divide by block_size.",
        "children": "Node's children are the nodes children[node] … children[node + 1] - 1.",
        "starts": "Node's children are the nodes children[node] … children[node + 1] - 1.",
    }
    return told.get(found.name, "That index is none of the tree's.")


EXPLAIN: Explain = {
    "out_of_bounds": _outside,
    "race": "Each prompt has a thread of its own, and a row of its own.",
    "time_limit": (
        "Does every turn of the loop go to another child, go down, or leave the loop? A child that "
        "shares nothing is passed over; when a node has no more children, the walk is at its end."
    ),
}


def draw_lookup(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    known, prompts, block_size, max_blocks = drawn(0)
    tokens, begins = ends_to_end(prompts)
    flat, out = flat_tree(known, block_size), outputs(len(prompts), max_blocks)
    inputs = (ints(tokens), ints([*begins, len(tokens)]), *flat.arrays, *out)
    sizes = (len(prompts), block_size, max_blocks)
    return draw_costs(report_of(path, "match_simple_i32", *inputs, *sizes))
