"""Naive counterparts of the engine's core: slow, obvious, and sharing no code with it.

Property tests compare the real thing with these on drawn inputs. `examples` says how many: few
and always the same by default, many and fresh ones with `YAIE_LONG_TESTS=1` in the environment
(a failure then prints what reproduces it).
"""

import os
from collections.abc import Iterator, Sequence

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from yaie.course.exercises import oracles
from yaie.course.exercises.nb02.trees import path_to
from yaie.course.exercises.nb02.trees import table as contents
from yaie.course.exercises.oracles import Path
from yaie.engine.radix import RadixNode, RadixTree

LONG = os.environ.get("YAIE_LONG_TESTS", "") not in ("", "0")


def examples(number: int, steps: int = 50) -> settings:
    """How many examples a property test draws, and steps a state machine takes in each."""
    return settings(
        max_examples=number * (20 if LONG else 1),
        stateful_step_count=steps,
        derandomize=not LONG,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


# ------------------------------------------------------------------------------------- prompts


def prompts(block_size: int, max_blocks: int = 6) -> st.SearchStrategy[list[int]]:
    """Token lists of any length that often begin alike, and differ anywhere within a block."""
    size = block_size
    blocks = [[0] * size, [1] + [0] * (size - 1), [0] * (size - 1) + [1]]
    body = st.lists(st.sampled_from(blocks), max_size=max_blocks)
    tail = st.integers(0, size - 1).map(lambda n: [0] * n)
    return st.builds(lambda body, tail: [t for block in body for t in block] + tail, body, tail)


# ------------------------------------------------------------------------------------- prefixes


class PrefixOracle(oracles.PrefixOracle):
    """The checks' oracle; here a prefix can be dropped, too."""

    def prune(self, path: Path) -> None:
        """Remove a prefix from its end on, up to where a lock or another prefix needs it."""
        for prefix in reversed(self.prefixes(path[1], path[0])):
            if self.locks[prefix] or any(extends(path, prefix) for path in self.value):
                break
            self.remove(prefix)


def extends(path: Path, prefix: Path) -> bool:
    """Whether a path goes on where a prefix ends."""
    is_longer = len(path[1]) > len(prefix[1])
    return path[0] == prefix[0] and is_longer and path[1][: len(prefix[1])] == prefix[1]


def all_nodes(tree: RadixTree) -> Iterator[tuple[Path, RadixNode]]:
    """Every node with its path from the root of its namespace, roots included."""
    stack = [((namespace, ()), root) for namespace, root in tree.roots.items()]
    while stack:
        (namespace, tokens), node = stack.pop()
        yield (namespace, tokens), node
        stack.extend(
            ((namespace, tokens + tuple(map(ord, c.key))), c) for c in node.children.values()
        )


def path_of(node: RadixNode, namespace: str = "") -> Path:
    """The tokens from the root to a node."""
    return namespace, tuple(path_to(node))


def check_tree(tree: RadixTree) -> None:
    """Recount everything a radix tree counts, and check how its nodes hang together."""
    nodes = list(all_nodes(tree))
    for _, node in nodes:
        for first, child in node.children.items():
            assert child.parent is node
            assert child.key[: tree.block_size] == first
            assert len(child.key) > 0
            assert len(child.key) == len(child.values) * tree.block_size
            assert child.last_access <= node.last_access
            assert child.request_ids <= node.request_ids
        if node.parent is not None:
            assert node.lock_count >= sum(child.lock_count for child in node.children.values())
        else:
            assert (node.key, node.values, node.lock_count) == ("", [], 0)
    assert tree.num_nodes == len(nodes)
    assert tree.num_values == sum(len(node.values) for _, node in nodes)
    unlocked = [node for _, node in nodes if node.lock_count == 0]
    assert tree.num_evictable == sum(len(node.values) for node in unlocked)


def agrees(tree: RadixTree, oracle: PrefixOracle) -> None:
    """Check that a tree holds exactly what the oracle holds, with the same locks and times."""
    check_tree(tree)
    assert contents(tree) == oracle.value
    for path, node in all_nodes(tree):
        above = len(path[1]) - len(node.key)
        for end in range(above + tree.block_size, len(path[1]) + 1, tree.block_size):
            prefix = (path[0], path[1][:end])
            assert oracle.locks[prefix] == node.lock_count
            assert oracle.last_access[prefix] == node.last_access
    assert tree.num_evictable == oracle.evictable


# ------------------------------------------------------------------------------------- attention


naive_attention, naive_rotary = oracles.attention, oracles.rotary

# ------------------------------------------------------------------------------------- sampling

EXAMPLE = [0.4, 0.3, 0.15, 0.1, 0.05]
# What is drawn from EXAMPLE with a temperature, top-k, top-p and min-p: relative weights.
FILTERED = {
    "plain": ((1.0, 0, 1.0, 0.0), EXAMPLE),
    "temperature 2": ((2.0, 0, 1.0, 0.0), [p**0.5 for p in EXAMPLE]),
    "temperature 0.5": ((0.5, 0, 1.0, 0.0), [p**2 for p in EXAMPLE]),
    "top_k": ((1.0, 2, 1.0, 0.0), [0.4, 0.3, 0, 0, 0]),
    "top_p": ((1.0, 0, 0.8, 0.0), [0.4, 0.3, 0.15, 0, 0]),
    "min_p": ((1.0, 0, 1.0, 0.3), [0.4, 0.3, 0.15, 0, 0]),
    "top_k before top_p": ((1.0, 3, 0.8, 0.0), [0.4, 0.3, 0, 0, 0]),
    "temperature before top_p": ((0.5, 0, 0.8, 0.0), [0.16, 0.09, 0, 0, 0]),
}


def check_frequencies(tokens: torch.Tensor, name: str) -> None:
    """Tokens come as often as `FILTERED[name]` says, and not as often as another entry says."""
    counts = torch.bincount(tokens.cpu(), minlength=len(EXAMPLE)).tolist()
    wanted = FILTERED[name][1]
    assert chi_square_p(counts, wanted) > 1e-3
    for other, (_, wrong) in FILTERED.items():
        shares = [[w / sum(ws) for w in ws] for ws in (wanted, wrong)]
        if max(abs(a - b) for a, b in zip(*shares, strict=True)) > 0.1:
            assert chi_square_p(counts, wrong) < 1e-4, other


def chi_square_p(counts: Sequence[int], weights: Sequence[float]) -> float:
    """How likely counts at least this far from the relative weights are (Pearson's test)."""
    fewest = min(weight for weight in weights if weight) * sum(counts) / sum(weights)
    assert fewest >= 5, "too few draws for the approximation"
    return oracles.chi_square(counts, weights)
