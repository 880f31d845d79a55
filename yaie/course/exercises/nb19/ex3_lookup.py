"""19.3: a walk down a tree in arrays, beside the sequences that the tree was made of."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import Explain, draw_lines, in_every_order, run
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb19.metadata import UNWRITTEN, ints, unwritten
from yaie.course.lessons.flat_tree import flatten
from yaie.course.lessons.ops.reference.radix import FlatTree
from yaie.emulator.checks import Finding
from yaie.engine.radix import RadixTree

Sequences = list[list[int]]
# What the tree holds, the prompts, block size, max_blocks.
SMALL = (
    ([[1, 2, 3, 4], [1, 2, 7, 8], [5, 6]], [[1, 2, 7, 8, 9], [5, 6], [9, 9], [1, 2]], 2, 3),
    # Each prompt goes on in the next as the tree does; the first ends inside an edge.
    ([[1, 2, 3, 4, 5, 6], [5, 6, 1, 2]], [[1, 2, 3, 4], [5, 6], [1, 2, 3, 9], [5, 6, 1]], 2, 2),
    # After the first edge, which fits in part only, a child would fit.
    ([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]], [[1, 2, 5, 6], [1, 2, 3, 4, 7, 8]], 2, 4),
    ([[1, 2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]], 2, 2),
    ([], [[1, 2], []], 1, 2),
)


def cases() -> Iterator[Case]:
    yield from in_every_order(*(case(*scene) for scene in SMALL))
    for seed in range(8):
        yield case(*drawn(seed))


def case(known: Sequences, prompts: Sequences, block_size: int, most: int) -> Case:
    small = len(prompts) < 10
    tree = f"a tree of {known}" if small else f"a tree of {len(known)} sequences"
    asked = f"prompts {prompts}" if small else f"{len(prompts)} prompts"
    name = f"{tree}, blocks of {block_size}, {asked}, max_blocks {most}"
    return Case(name, known=known, prompts=prompts, size=block_size, most=most, order="forward")


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


def launched(case: Case) -> tuple[FlatTree, list[Any], list[Any]]:
    """The tree, a launch's arguments, and of these the outputs."""
    tree = RadixTree(case.size)
    for number, sequence in enumerate(case.known):
        tree.insert(sequence, range(100 * number, 100 * number + len(sequence) // case.size))
    flat, count = flatten(tree), len(case.prompts)
    tokens = [token for prompt in case.prompts for token in prompt]
    bounds = list(accumulate(map(len, case.prompts), initial=0))
    outputs = [unwritten(count), unwritten(count), unwritten(count, case.most)]
    inputs = [ints(tokens), ints(bounds), *flat.arrays]
    return flat, [*inputs, *outputs, count, case.size, case.most], outputs


def observe(path: Path, case: Case, see: Observer) -> None:
    flat, arguments, outputs = launched(case)
    run(see, path, "match_simple_i32", *arguments, explain=EXPLAIN, order=case.order)
    lengths, nodes, rows = (out.tolist() for out in outputs)
    size = case.size
    cut = [prompt[: min(len(prompt) // size, case.most) * size] for prompt in case.prompts]
    want = [
        max((common(prompt, known) // size * size for known in case.known), default=0)
        for prompt in cut
    ]
    longest = "It is the longest beginning of the prompt that some sequence has, in whole blocks."
    see.equal("lengths", lengths, want, longest)
    for p, (length, row) in enumerate(zip(want, rows, strict=True)):
        prompt = case.prompts[p]
        values = [value_of(case.known, prompt[:end], size) for end in range(size, length + 1, size)]
        because = f"{len(values)} blocks are found, each with its value, and -1 stands after them."
        if UNWRITTEN in row:
            because += f" {UNWRITTEN} was there before: it was not written."
        full = values + [-1] * (case.most - len(values))
        see.equal(f"row {p} of the table", row, full, because)
    ends = [
        next(n for n in range(len(flat.nodes)) if ends_inside(flat, n, prompt, length))
        for prompt, length in zip(case.prompts, want, strict=True)
    ]
    inside = "It is the node in whose key the match ends; 0, the root, if nothing was found."
    see.equal("nodes", nodes, ends, inside)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens agree from the beginning."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def value_of(known: Sequences, prefix: list[int], size: int) -> int:
    """The value of the last block of a prefix: that of the sequence which brought it first."""
    number = next(i for i, sequence in enumerate(known) if sequence[: len(prefix)] == prefix)
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


def _outside(found: Finding) -> str:
    told = {
        "table": "A row of the table has max_blocks elements.",
        "tokens": "A prompt ends at `whole` tokens.",
        "edges": "A node's key ends where the next one's begins, at starts[node + 1].",
        "values": "There is one value for each block, not for each token.",
        "children": "Node's children are the nodes children[node] … children[node + 1] - 1.",
        "starts": "Node's children are the nodes children[node] … children[node + 1] - 1.",
    }
    return told.get(found.name, "That index is none of the tree's.")


EXPLAIN: Explain = {
    "out_of_bounds": _outside,
    "race": "Each prompt has a thread of its own, and a row of its own.",
}


def draw(path: Path) -> Any:
    """What each line costs."""
    _, arguments, _ = launched(case(*drawn(0)))
    return draw_lines(path, "match_simple_i32", *arguments)
