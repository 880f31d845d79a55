"""The flat radix tree against the tree itself: the arrays, and the lookup of batches of prompts."""

import random

import pytest
import torch
from integer_kernels import check_launches
from launches import captured, each_device, gpu_only, ints, starts

from yaie.course.exercises.nb02.trees import path_to
from yaie.course.lessons.flat_tree import flatten
from yaie.course.lessons.ops.radix import match_prefixes
from yaie.course.lessons.ops.reference.radix import FlatTree
from yaie.engine.kv_cache import BlockPool
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree

Prompts = list[list[int]]


def ragged(prompts: Prompts, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens end to end, and where each prompt begins."""
    tokens = ints([t for prompt in prompts for t in prompt], device)
    return tokens, starts(map(len, prompts), device)


def tree_of(sequences: Prompts, block_size: int) -> RadixTree:
    """A tree whose values are 0, 1, 2, … in the order in which they came."""
    tree, used = RadixTree(block_size), 0
    for sequence in sequences:
        blocks = len(sequence) // block_size
        tree.insert(sequence, range(used, used + blocks))
        used += blocks
    return tree


def scene(seed: int) -> tuple[RadixTree, Prompts, int]:
    """A random tree, prompts that share something with it, and a number of blocks."""
    draw = random.Random(seed)
    block_size, vocabulary = draw.choice([1, 2, 3, 16, 33]), draw.choice([2, 3, 50])

    def more(most: int) -> list[int]:
        return [draw.randrange(vocabulary) for _ in range(draw.randrange(most))]

    known: Prompts = []
    for _ in range(draw.randrange(14)):
        known.append([*begun(draw, known), *more(90)])
    prompts = [[*begun(draw, known), *more(40)] for _ in range(draw.randrange(9))]
    longest = max([len(prompt) // block_size for prompt in prompts], default=0)
    return tree_of(known, block_size), prompts, max(0, longest + draw.randrange(-2, 3))


def begun(draw: random.Random, known: Prompts) -> list[int]:
    return draw.choice(known)[: draw.randrange(150)] if known and draw.random() < 0.8 else []


def wanted(tree: RadixTree, prompts: Prompts, max_blocks: int) -> tuple[Prompts, Prompts]:
    """Lengths and tables, by `RadixTree.match`; splits edges."""
    found = [tree.match(prompt[: max_blocks * tree.block_size]) for prompt in prompts]
    tables = [match.values + [-1] * (max_blocks - len(match.values)) for match in found]
    return [match.length for match in found], tables


def ends_in(flat: FlatTree, numbers: list[int], prompts: Prompts, lengths: list[int]) -> None:
    """Each node's tokens go on from the match, which ends inside its key or at its end."""
    for number, prompt, length in zip(numbers, prompts, lengths, strict=True):
        path = path_to(flat.nodes[number])
        assert path[:length] == prompt[:length]
        assert len(path) - len(flat.nodes[number].key) < length or (length, number) == (0, 0)


# ---------------------------------------------------------------------------------- the arrays


def test_arrays_of_a_small_tree() -> None:
    tree = tree_of([[1, 2, 3, 4], [1, 2, 7, 8], [5, 6]], block_size=2)
    flat = flatten(tree)
    # The root; its children 1 2 and 5 6; below 1 2, the children 3 4 and 7 8.
    assert flat.tokens.tolist() == [1, 2, 5, 6, 3, 4, 7, 8]
    assert flat.starts.tolist() == [0, 0, 2, 4, 6, 8]
    assert flat.children.tolist() == [1, 3, 5, 5, 5, 5]
    assert flat.values.tolist() == [0, 4, 1, 3]
    assert [*map(path_to, flat.nodes)] == [[], [1, 2], [5, 6], [1, 2, 3, 4], [1, 2, 7, 8]]


@pytest.mark.parametrize("seed", range(10))
def test_the_tree_can_be_read_from_the_arrays(seed: int) -> None:
    tree = scene(seed)[0]
    flat = flatten(tree)
    starts, children = flat.starts.tolist(), flat.children.tolist()
    assert len(flat.nodes) == tree.num_nodes == len(starts) - 1 == len(children) - 1
    assert len(flat.values) == tree.num_values
    for i, node in enumerate(flat.nodes):
        assert flat.tokens[starts[i] : starts[i + 1]].tolist() == [*map(ord, node.key)]
        first = starts[i] // tree.block_size
        assert flat.values[first : first + len(node.values)].tolist() == node.values
        below = [flat.nodes[child] for child in range(children[i], children[i + 1])]
        assert below == sorted(node.children.values(), key=lambda child: child.key)


def test_namespaces_and_values_that_are_none() -> None:
    tree = RadixTree()
    tree.insert([1, 2], namespace="a")
    assert flatten(tree).tokens.tolist() == []
    assert flatten(tree, "b").children.tolist() == [1, 1]
    flat = flatten(tree, "a")
    assert flat.tokens.tolist() == [1, 2] and flat.values.tolist() == [-1, -1]


def test_a_prefix_cache_is_flattened_as_its_tree() -> None:
    pool = BlockPool(8)
    cache = RadixCache(pool, 2)
    cache.insert([1, 2, 3, 4], pool.allocate(2))
    assert flatten(cache).values.tolist() == flatten(cache.tree).values.tolist() != []


def test_the_arrays_stay_what_they_were() -> None:
    tree = tree_of([[1, 2, 3, 4]], 1)
    flat = flatten(tree)
    tree.insert([1, 2, 9])
    lengths, _, table = match_prefixes(flat, *ragged([[1, 2, 3, 5], [1, 2, 9]]), 4)
    assert lengths.tolist() == [3, 2]
    assert table.tolist() == [[0, 1, 2, -1], [0, 1, -1, -1]]


# ---------------------------------------------------------------------------------- the lookup


@each_device
@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_the_same_as_the_tree_finds(backend: str, device: str) -> None:
    for seed in range(40):
        tree, prompts, max_blocks = scene(seed)
        flat = flatten(tree)
        found = match_prefixes(
            flat.to(device), *ragged(prompts, device), max_blocks, backend=backend
        )
        lengths, nodes, table = (x.tolist() for x in found)
        assert found[2].shape == (len(prompts), max_blocks)
        ends_in(flat, nodes, prompts, lengths)
        assert (lengths, table) == wanted(tree, prompts, max_blocks), seed


@each_device
@pytest.mark.parametrize("name", ["match", "match_simple"])
def test_launchers(name: str, device: str) -> None:
    for seed in range(12):
        tree, prompts, max_blocks = scene(seed)
        flat = flatten(tree)
        expected = match_prefixes(flat, *ragged(prompts), max_blocks, backend="reference")
        lengths, table = wanted(tree, prompts, max_blocks)
        assert (expected[0].tolist(), expected[2].tolist()) == (lengths, table)
        sizes = (len(prompts), flat.block_size, max_blocks)
        check_launches(
            *(f"radix/{name}.cu", name, [*ragged(prompts), *flat.arrays], expected),
            lambda inputs, out, sizes=sizes: (*inputs, *out, *sizes),
            device,
        )


def test_a_node_with_many_children() -> None:
    """Bisection finds each of them, and nothing between, before or after them."""
    known = [[i, i + 1, 7] for i in range(0, 400, 2)]
    flat = flatten(tree_of(known, 1))
    prompts = [[i, i + 1, 7] for i in range(-1, 402)]
    lengths, _, _ = match_prefixes(flat, *ragged(prompts), 3, backend="cuda")
    assert lengths.tolist() == [3 if 0 <= i < 400 and i % 2 == 0 else 0 for i in range(-1, 402)]


def test_bad_arguments() -> None:
    flat = flatten(tree_of([[1, 2]], 1))
    prompts, bounds = ragged([[1], [2, 3]])
    with pytest.raises(TypeError, match="prompts must be int32, got int64"):
        match_prefixes(flat, prompts.long(), bounds, 1)
    with pytest.raises(ValueError, match="cu_seqlens must ascend from 0 to"):
        match_prefixes(flat, prompts, bounds[:0], 1)
    for wrong in ([0, 1, 2], [1, 3], [0, 2, 1, 3]):
        with pytest.raises(ValueError, match="cu_seqlens must ascend from 0 to 3"):
            match_prefixes(flat, prompts, ints(wrong), 1)
    with pytest.raises(ValueError, match="max_blocks must not be negative, got -1"):
        match_prefixes(flat, prompts, bounds, -1)


@gpu_only
def test_captured_in_a_cuda_graph(device: str) -> None:
    flat = flatten(tree_of([list(range(1000)), list(range(500))[::-1]], 4)).to(device)
    prompts = ragged([list(range(800)), [1, 2], list(range(500))[::-1]], device)
    (lengths, _, _), replay = captured(lambda: match_prefixes(flat, *prompts, 200, backend="cuda"))
    prompts[0][402:404] = -1
    replay()
    assert lengths.tolist() == [400, 0, 500]
