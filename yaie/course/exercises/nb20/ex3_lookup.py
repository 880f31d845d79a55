"""20.3: a walk down a tree in arrays, beside the same walk in Python."""

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb20.metadata import ints
from yaie.course.lessons.flat_tree import flatten
from yaie.course.lessons.ops.reference.radix import NO_VALUE, match_prefixes
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


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(case(*scene) for scene in SMALL))
    for seed in range(8):
        yield case(*drawn(seed))


def case(known: Sequences, prompts: Sequences, block_size: int, most: int) -> KernelCase:
    small = len(prompts) < 10
    tree = f"a tree of {known}" if small else f"a tree of {len(known)} sequences"
    asked = f"prompts {prompts}" if small else f"{len(prompts)} prompts"
    name = f"{tree}, blocks of {block_size}, {asked}, max_blocks {most}"
    return KernelCase(name, known=known, prompts=prompts, size=block_size, most=most)


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


def launched(case: KernelCase) -> tuple[list[Any], list[Any], list[int]]:
    """What a launch reads, writes, and its sizes."""
    tree = RadixTree(case.size)
    for number, sequence in enumerate(case.known):
        tree.insert(sequence, range(100 * number, 100 * number + len(sequence) // case.size))
    count = len(case.prompts)
    tokens = [token for prompt in case.prompts for token in prompt]
    bounds = list(accumulate(map(len, case.prompts), initial=0))
    shapes = (count,), (count,), (count, case.most)
    outputs = [cuda.poisoned(*shape, dtype=torch.int32) for shape in shapes]
    inputs = [ints(tokens), ints(bounds), *flatten(tree).arrays]
    return inputs, outputs, [count, case.size, case.most]


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    inputs, outputs, sizes = launched(case)
    arguments = *inputs, *outputs, *sizes
    cuda.run(see, path, "match_simple_i32", *arguments, explain=EXPLAIN, **case.how)
    want = match_prefixes(*inputs, case.size, case.most)
    (lengths, nodes, table), (want_lengths, want_nodes, want_table) = outputs, want
    longest = "It is the longest beginning of the prompt that some sequence has, in whole blocks."
    see.equal("lengths", lengths.tolist(), want_lengths.tolist(), cuda.unwritten(lengths, longest))
    for p, (row, want_row) in enumerate(zip(table, want_table.tolist(), strict=True)):
        count = case.most - want_row.count(NO_VALUE)
        found = f"{count} blocks are found, each with its value, and -1 stands after them."
        see.equal(f"row {p} of the table", row.tolist(), want_row, cuda.unwritten(row, found))
    inside = "It is the node in whose key the match ends; 0, the root, if nothing was found."
    see.equal("nodes", nodes.tolist(), want_nodes.tolist(), cuda.unwritten(nodes, inside))


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


EXPLAIN: cuda.Explain = {
    "out_of_bounds": _outside,
    "race": "Each prompt has a thread of its own, and a row of its own.",
}


def draw(path: Path) -> Any:
    """What each line costs."""
    inputs, outputs, sizes = launched(case(*drawn(0)))
    return cuda.draw_lines(path, "match_simple_i32", *inputs, *outputs, *sizes)
