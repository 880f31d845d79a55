"""What the radix tree costs: matching by length and by the number of cached sequences, and eviction
by the size of the tree.

All in one thread of pure Python. Prompts are random token ids, since their meaning makes no
difference to a tree. Every figure is the median of several rounds, in CPU time, so that other
programs hardly affect it.
"""

import random
import statistics
import time
import timeit
from collections.abc import Callable

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
    lengths = [PROMPT_TOKENS // 4, PROMPT_TOKENS // 2, PROMPT_TOKENS, PROMPT_TOKENS * 4]
    by_tokens = {
        shape: {n: _match(make, rounds, _random_tokens(n, seed=n)) for n in lengths}
        for shape, make in SHAPES.items()
    }
    results = {
        "match_ms": {shape: by_tokens[shape][PROMPT_TOKENS] for shape in SHAPES},
        "match_ms_by_tokens": by_tokens,
        "match_ms_by_sequences": {n: _match_beside(n, rounds) for n in SEQUENCES},
        "evict_us_by_leaves": {n: _evict(n, max(1, rounds // 3)) for n in LEAVES},
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
    tree = _one_edge(prompt)
    for end in range(len(prompt) - BLOCK_SIZE, 0, -BLOCK_SIZE):
        tree.match(prompt[:end])
    return tree


def _differs_at_the_end(prompt: Prompt) -> RadixTree:
    """A sequence that differs in the prompt's last block: its edge is compared and then split."""
    return _one_edge([*prompt[:-1], VOCABULARY])


SHAPES: dict[str, Callable[[Prompt], RadixTree]] = {
    "one long edge": _one_edge,
    "one node per block": _node_a_block,
    "differs in its last block": _differs_at_the_end,
}


def _match(make: Callable[[Prompt], RadixTree], rounds: int, prompt: Prompt) -> float:
    """Milliseconds of a match, in a fresh tree if matching splits it."""
    query, first = _other_objects(prompt), make(prompt)
    reusable = first.match(query).length == len(query)  # otherwise it was split
    trees = [first if reusable else make(prompt) for _ in range(rounds)]
    return 1e3 * statistics.median(_seconds(lambda tree=tree: tree.match(query)) for tree in trees)


def _match_beside(num_sequences: int, rounds: int) -> float:
    """Milliseconds of a match beside sequences that diverge from the prompt in its first sixteen
    blocks."""
    rng, prompt = random.Random(num_sequences), _random_tokens(PROMPT_TOKENS, seed=PROMPT_TOKENS)
    tree = _one_edge(prompt)
    for number in range(num_sequences):
        own = _random_tokens(2 * BLOCK_SIZE, seed=number)
        tree.insert(prompt[: BLOCK_SIZE * rng.randrange(16)] + own)
    query = _other_objects(prompt)
    return 1e3 * statistics.median(_seconds(lambda: tree.match(query)) for _ in range(rounds))


# ------------------------------------------------------------------------------------- eviction


def _evict(num_leaves: int, rounds: int) -> float:
    """Microseconds to evict a leaf, one call for each, after all were used again in any order."""
    times = []
    for seed in range(rounds):
        tree = RadixTree(BLOCK_SIZE)
        leaves = [_random_tokens(BLOCK_SIZE, seed=(seed, n)) for n in range(num_leaves)]
        for leaf in leaves:
            tree.insert(leaf)
        random.Random(seed).shuffle(leaves)
        for leaf in leaves:  # so that every entry of the heap is out of date
            tree.match(leaf)
        seconds = _seconds(lambda tree=tree: [tree.evict(1) for _ in range(num_leaves)])
        assert tree.num_values == 0
        times.append(seconds / num_leaves)
    return 1e6 * statistics.median(times)


# ------------------------------------------------------------------------------------- protocol


def _random_tokens(num_tokens: int, seed: object) -> Prompt:
    return random.Random(str(seed)).choices(range(VOCABULARY), k=num_tokens)


def _other_objects(prompt: Prompt) -> Prompt:
    """The same numbers in other objects than those in the tree: equal objects compare faster."""
    return [int(str(token)) for token in prompt]


def _seconds(call: Callable[[], object]) -> float:
    """Of CPU time, with the garbage collector off."""
    return timeit.timeit(call, timer=time.process_time, number=1)


def _table(results: dict[str, dict]) -> Table:
    slowest = max(results["match_ms"].values())
    verdict = "within" if slowest < LIMIT_MS else "NOT within"
    table = Table(
        title=f"Radix tree, {BLOCK_SIZE} tokens per block",
        caption=f"{PROMPT_TOKENS:,} tokens: at most {slowest:.2f} ms, {verdict} {LIMIT_MS:g} ms",
    )
    for column in ("what", "of"):
        table.add_column(column)
    for column in ("time", "per unit"):
        table.add_column(column, justify="right", no_wrap=True)
    for shape, by_tokens in results["match_ms_by_tokens"].items():
        for tokens, ms in by_tokens.items():
            per_token = f"{1e6 * ms / tokens:.0f} ns per token"
            table.add_row(f"match, {shape}", f"{tokens:,} tokens", f"{ms:.2f} ms", per_token)
    for sequences, ms in results["match_ms_by_sequences"].items():
        what = f"{PROMPT_TOKENS:,} tokens beside {sequences:,} sequences"
        table.add_row("match", what, f"{ms:.2f} ms", "")
    for leaves, us in results["evict_us_by_leaves"].items():
        milliseconds = f"{us * leaves / 1e3:.1f} ms"
        table.add_row("evict", f"{leaves:,} leaves", milliseconds, f"{us:.2f} µs per leaf")
    return table
