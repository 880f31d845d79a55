"""What the radix tree costs: of matching, by length and by company; of eviction, by size.

All in one thread of pure Python. Prompts are random, since a tree of token ids cannot tell.
Every figure is the median of several rounds, in CPU time, so that what else the machine does
counts little; the garbage collector is off, as in `timeit`.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from yaie.engine.radix import RadixTree

BLOCK_SIZE = 16
VOCABULARY = 49152
PROMPT_TOKENS = 32_000
SEQUENCES = (10, 1_000, 100_000)  # cached beside the prompt
LEAVES = (1_000, 10_000, 100_000)
LIMIT_MS = 3.0  # what a match of such a prompt may take

Prompt = list[int]


def run(rounds: int = 7) -> dict[str, dict]:
    """Measure, print a table, and return the figures.

    Args:
        rounds: of each measurement; of evictions, a third as many.

    Returns:
        `match_ms`: milliseconds to match 32,000 tokens, by the shape of what is cached;
        `match_ms_by_tokens`: by shape and prompt length; `match_ms_by_sequences`: by the number of
        cached sequences; `evict_us_by_leaves`: microseconds to evict a leaf, by the number of
        leaves.
    """
    with _no_garbage_collection():
        lengths = [PROMPT_TOKENS // 4, PROMPT_TOKENS // 2, PROMPT_TOKENS, PROMPT_TOKENS * 4]
        by_tokens = {
            shape: {n: _milliseconds(make, rounds, _prompt(n)) for n in lengths}
            for shape, make in SHAPES.items()
        }
        few = max(1, rounds // 3)
        results = {
            "match_ms": {shape: by_tokens[shape][PROMPT_TOKENS] for shape in SHAPES},
            "match_ms_by_tokens": by_tokens,
            "match_ms_by_sequences": {n: _in_company(n, rounds) for n in SEQUENCES},
            "evict_us_by_leaves": {n: _evict(n, few) for n in LEAVES},
        }
    Console().print(_table(results))
    return results


# ------------------------------------------------------------------------------------- match


def _one_edge(prompt: Prompt) -> RadixTree:
    """The prompt was inserted whole."""
    tree = RadixTree(BLOCK_SIZE)
    tree.insert(prompt)
    return tree


def _node_a_block(prompt: Prompt) -> RadixTree:
    """The prompt grew by one block at a time, as a chat of very short turns might."""
    tree = RadixTree(BLOCK_SIZE)
    tree.insert(prompt)
    for end in range(len(prompt) - BLOCK_SIZE, 0, -BLOCK_SIZE):
        tree.match(prompt[:end])
    return tree


def _differs_at_the_end(prompt: Prompt) -> RadixTree:
    """A sequence that differs in the prompt's last block: its edge is compared and then split."""
    return _one_edge([*prompt[:-1], VOCABULARY])


SHAPES: dict[str, Callable[[Prompt], RadixTree]] = {
    "one long edge": _one_edge,
    "one node a block": _node_a_block,
    "differs in its last block": _differs_at_the_end,
}


def _milliseconds(make: Callable[[Prompt], RadixTree], rounds: int, prompt: Prompt) -> float:
    """Time a match in a fresh tree, since matching may split it."""
    # A prompt of other objects than those in the tree: equal objects are compared faster.
    query = [int(str(token)) for token in prompt]
    first = make(prompt)
    reusable = first.match(query).length == len(query)  # otherwise it was split
    trees = [first if reusable else make(prompt) for _ in range(rounds)]
    return 1e3 * statistics.median(_seconds(lambda tree=tree: tree.match(query)) for tree in trees)


def _in_company(num_sequences: int, rounds: int) -> float:
    """Time a match beside sequences that part from the prompt in its first sixteen blocks."""
    rng, prompt = random.Random(num_sequences), _prompt(PROMPT_TOKENS)
    tree = _one_edge(prompt)
    for _ in range(num_sequences):
        own = [rng.randrange(VOCABULARY) for _ in range(2 * BLOCK_SIZE)]
        tree.insert(prompt[: BLOCK_SIZE * rng.randrange(16)] + own)
    query = [int(str(token)) for token in prompt]
    return 1e3 * statistics.median(_seconds(lambda: tree.match(query)) for _ in range(rounds))


# ------------------------------------------------------------------------------------- eviction


def _evict(num_leaves: int, rounds: int) -> float:
    """Time the eviction of every leaf, one call each, after all were used again in any order."""
    times = []
    for seed in range(rounds):
        rng = random.Random(seed)
        tree = RadixTree(BLOCK_SIZE)
        leaves = [[rng.randrange(VOCABULARY) for _ in range(BLOCK_SIZE)] for _ in range(num_leaves)]
        for leaf in leaves:
            tree.insert(leaf)
        rng.shuffle(leaves)
        for leaf in leaves:  # so that every entry of the heap is out of date
            tree.match(leaf)
        seconds = _seconds(lambda tree=tree: [tree.evict(1) for _ in range(num_leaves)])
        assert tree.num_values == 0
        times.append(seconds / num_leaves)
    return 1e6 * statistics.median(times)


# ------------------------------------------------------------------------------------- protocol


def _prompt(num_tokens: int) -> Prompt:
    rng = random.Random(num_tokens)
    return [rng.randrange(VOCABULARY) for _ in range(num_tokens)]


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _table(results: dict[str, dict]) -> Table:
    slowest = max(results["match_ms"].values())
    verdict = "within" if slowest < LIMIT_MS else "NOT within"
    table = Table(
        title=f"Radix tree, {BLOCK_SIZE} tokens a block",
        caption=f"{PROMPT_TOKENS:,} tokens: at most {slowest:.2f} ms, {verdict} {LIMIT_MS:g} ms",
    )
    for column in ("what", "of"):
        table.add_column(column)
    for column in ("time", "a unit"):
        table.add_column(column, justify="right", no_wrap=True)
    for shape, by_tokens in results["match_ms_by_tokens"].items():
        for tokens, ms in by_tokens.items():
            per_token = f"{1e6 * ms / tokens:.0f} ns a token"
            table.add_row(f"match, {shape}", f"{tokens:,} tokens", f"{ms:.2f} ms", per_token)
        table.add_section()
    for sequences, ms in results["match_ms_by_sequences"].items():
        company = f"{PROMPT_TOKENS:,} tokens beside {sequences:,} sequences"
        table.add_row("match", company, f"{ms:.2f} ms", "")
    table.add_section()
    for leaves, us in results["evict_us_by_leaves"].items():
        table.add_row(
            "evict", f"{leaves:,} leaves", f"{us * leaves / 1e3:.1f} ms", f"{us:.2f} µs a leaf"
        )
    return table
