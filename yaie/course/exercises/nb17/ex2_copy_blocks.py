"""17.2: every unit of every pool, whatever the grid, and pairs that meet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb17.pools import pool_of

NAME = "copy_blocks_simple"
THREADS = 256
APART = ((0, 3), (2, 1))
CHAIN = ((2, 3), (1, 2), (0, 1))
LARGE = (2**31 - 1) // THREADS  # thread blocks, of which an int still holds all threads
FAR = 2**19  # a block of 4,096 bytes that begins at byte 2**31
EXPLAIN = {
    "race": "Each place belongs to one thread, which takes it through all pairs in their order.",
    "out_of_bounds": "There are num_pools * size places, and block b begins at unit b * size.",
    "misaligned": "Count in units of V: a block has `size` of them.",
}


def cases() -> Iterator[KernelCase]:
    yield copies("blocks of 320 units, 2 pools", APART, (10, 2, 16), 2, 8)
    yield copies("4 pools", APART, (2, 2, 20), 4, 1)
    yield copies("more threads than places", APART, (1, 1, 5), 2, 3)
    for unit in (1, 2, 8, 16):
        yield copies(f"units of {unit} bytes", APART, (2, 2, 12), 2, 2, unit=unit)
    meet = copies("a block that is target and source", CHAIN, (3, 2, 32), 2, 5)
    yield from cuda.in_every_order(meet)
    yield copies("one pair after the other", ((0, 1), (1, 2), (3, 3)), (2, 1, 8), 2, 1)
    words = "blocks of 4,096 bytes in units of 16"
    yield copies(words, APART, (16, 2, 32), 2, 1, unit=16, costs=True)
    words = "32 pools, blocks of 1,024 bytes in units of 16"
    yield copies(words, APART, (4, 2, 32), 32, 1, unit=16, costs=True)
    words = "a grid of which the first 4 thread blocks run here"
    yield copies(words, APART, (10, 2, 16), 2, LARGE, most_blocks=4)
    words, pairs = "a large pool", ((0, FAR), (FAR + 1, 1))
    yield copies(words, pairs, (4096,), 1, 1, unit=1, checked=False, most_blocks=1)


def copies(
    words: str, pairs: tuple[tuple[int, int], ...], shape: tuple, num_pools: int, blocks: int,
    unit: int = 4, costs: bool = False, **how: Any,
) -> KernelCase:  # fmt: skip
    listed = ", ".join(f"{source:,} → {target:,}" for source, target in pairs)
    grid = f"{blocks:,} thread block{'s' * (blocks > 1)} of {THREADS} threads"
    data = {"pairs": pairs, "shape": shape, "num_pools": num_pools, "blocks": blocks}
    return KernelCase(f"{words} ({listed}; {grid})", **data, unit=unit, costs=costs, how=how)


def after(pool: Any, pairs: tuple[tuple[int, int], ...]) -> Any:
    """The pairs one after the other, in PyTorch."""
    pool = pool.clone()
    for source, target in pairs:
        pool[target] = pool[source].clone()
    return pool


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    far = len(case.shape) == 1
    if far:
        pools = [large_pool()]
        want = [pools[0][[source for source, _ in case.pairs]].clone()]
    else:
        pools = [pool_of(5, *case.shape, seed=seed) for seed in range(case.num_pools)]
        want = [after(pool, case.pairs) for pool in pools]
    block_bytes = pools[0][0].numel() * pools[0].element_size()
    report = cuda.run(
        see, path, NAME, pools, torch.tensor(case.pairs), case.num_pools, len(case.pairs),
        block_bytes, case.unit, case.blocks, explain=EXPLAIN, **case.how,
    )  # fmt: skip
    if far:
        past = f"Block {FAR:,} begins at byte 2³¹, beyond what an int can hold."
        got = pools[0][[target for _, target in case.pairs]]
        see.equal("the targets in the pool", got, want[0], past)
        return
    because = "Pair by pair, block `target` becomes block `source`; the other blocks stay."
    for number, pool in enumerate(pools):
        see.equal(f"pools[{number}]", pool, want[number], because)
    if case.costs:
        neighbors = "The threads of a warp should take neighboring places in each iteration."
        cuda.cheap(see, report, dict.fromkeys(("global load", "global store"), neighbors))


def large_pool() -> Any:
    """Blocks of zeros that take no memory, but for two."""
    pool = cuda.reserved((FAR + 2) * 4096, torch.uint8).view(FAR + 2, 4096)
    pool[0], pool[FAR + 1] = 1, 2
    return pool


def draw(path: Path) -> Any:
    """What each line costs a warp."""
    pools = [pool_of(5, 16, 2, 32, seed=seed) for seed in range(2)]
    return cuda.draw_lines(path, NAME, pools, torch.tensor(APART), 2, 2, 4096, 16, 2)
