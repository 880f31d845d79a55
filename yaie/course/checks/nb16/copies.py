"""The check of 16.2: every unit of every pool, whatever the grid, and pairs that meet."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of, thread
from yaie.course.checks.nb16.common import pool_of
from yaie.course.core.cuda import launch
from yaie.course.core.expect import equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "copy_blocks_simple"
APART = ((0, 3), (2, 1))
CHAIN = ((2, 3), (1, 2), (0, 1))
PLACES = (
    "There are num_pools * size places. A thread begins with the place of its number in the grid, "
    "and goes on by the number of threads in the grid until there are no more."
)


def check_copies(path: Path) -> None:
    run(path, "blocks of 320 units, 2 pools", APART, (10, 2, 16), 2, thread_blocks=8)
    run(path, "4 pools, 1 thread block", APART, (2, 2, 20), 4, thread_blocks=1)
    run(path, "more threads than places", APART, (1, 1, 5), 2, thread_blocks=3)
    for unit in (1, 2, 8, 16):
        run(path, f"units of {unit} bytes", APART, (2, 2, 12), 2, thread_blocks=2, unit=unit)
    run(path, "a block that is target and source", CHAIN, (3, 2, 32), 2, thread_blocks=5)

    def values(order: str) -> None:
        words = f"a block that is target and source, threads in {order} order"
        run(path, words, CHAIN, (3, 2, 32), 2, thread_blocks=5, order=order)

    on_every_schedule(values)
    run(path, "one pair after the other", ((0, 1), (1, 2), (3, 3)), (2, 1, 8), 2, thread_blocks=1)
    costs(path)


def pools_of(shape: tuple[int, int, int], count: int) -> list[Any]:
    return [pool_of(5, *shape, seed=seed) for seed in range(count)]


def after(pool: Any, pairs: tuple[tuple[int, int], ...]) -> Any:
    """The pairs one after the other, in PyTorch."""
    pool = pool.clone()
    for source, target in pairs:
        pool[target] = pool[source].clone()
    return pool


def run(
    path: Path, words: str, pairs: tuple[tuple[int, int], ...], shape: tuple[int, int, int],
    num_pools: int, thread_blocks: int, unit: int = 4, order: str = "forward",
) -> None:  # fmt: skip
    import torch

    pools = pools_of(shape, num_pools)
    before = [pool.clone() for pool in pools]
    wanted = [after(pool, pairs) for pool in pools]
    block_bytes = pools[0][0].numel() * 4
    listed = ", ".join(f"{source} → {target}" for source, target in pairs)
    blocks = f"{thread_blocks} thread block{'s' * (thread_blocks > 1)}"
    with given(f"{words} ({listed}; {blocks} of 256 threads)"):
        launch(
            path, NAME, pools, torch.tensor(pairs), num_pools, len(pairs), block_bytes, unit,
            thread_blocks, explain=explanations(pairs, block_bytes), order=order,
        )  # fmt: skip
        targets = {target for _, target in pairs}
        for number, (pool, old, want) in enumerate(zip(pools, before, wanted, strict=True)):
            changed = (pool != old).flatten(1).any(1)
            for block in range(len(pool)):
                if bool(changed[block]) and block not in targets:
                    others(number, block, pool, old, want, pairs)
            mistakes = known_mistakes(number, pools, before, old, want, pairs, block_bytes // unit)
            equal(
                pool, want, f"pools[{number}]", mistakes=mistakes,
                because=f"Block `target` becomes block `source`. {PLACES}",
            )  # fmt: skip


def others(
    number: int, block: int, pool: Any, old: Any, want: Any, pairs: tuple[tuple[int, int], ...]
) -> None:
    turned = tuple((target, source) for source, target in pairs)
    told = "Touch the targets and nothing else: the other blocks belong to other requests."
    if bool((pool == after(old, turned)).all()):
        told = "It was copied the other way round: mapping[2 * pair] is the source."
    elif not bool(pool[block].any()):
        told = f"It is 0 now, as a block in no pair. {told}"
    fail(f"pools[{number}]: block {block} is no target, and it has changed. {told}")


def known_mistakes(
    number: int, pools: list[Any], before: list[Any], old: Any, want: Any,
    pairs: tuple[tuple[int, int], ...], size: int,
) -> list[tuple[Any, str]]:  # fmt: skip
    import torch

    turned = after(old, tuple((target, source) for source, target in pairs))
    found = [(turned, "Copied the other way round: mapping[2 * pair] is the source.")]
    done = [bool((p != b).any()) for p, b in zip(pools, before, strict=True)]
    if not any(done):
        found.append((old, "Nothing was copied in any pool."))
    elif not done[number]:
        found.append((
            old, f"Nothing was copied here, but in pool {done.index(True)} it was. All pools have "
            f"the same list of pairs: there are num_pools * size places. {PLACES}"
        ))  # fmt: skip
    per = old[0].numel() // size if size <= old[0].numel() else 1
    for first in (256, 32):
        if first < size:
            part = old.clone().flatten(1)
            part[:, : first * per] = want.flatten(1)[:, : first * per]
            found.append((
                part.view(old.shape), f"Only the first {first} units of each block were copied, "
                f"and a block has {size}. {PLACES}"
            ))  # fmt: skip
    found.append((after(old, pairs[:1]), "Only the first pair was copied."))
    together = old.clone()
    sources, targets = torch.tensor(pairs).unbind(1)
    together[targets] = old[sources]
    if len({*sources.tolist()} & {*targets.tolist()} - {3}) and not bool((together == want).all()):
        found.append((
            together, "All sources were read before the first target was written. Here pairs are "
            "copied one after the other, as they are listed."
        ))  # fmt: skip
    return found


def explanations(pairs: tuple[tuple[int, int], ...], block_bytes: int) -> dict[str, Any]:
    sources, targets = zip(*pairs, strict=True)
    meeting = sorted(set(sources) & set(targets))

    def race(found: Finding) -> str:
        if found.access == found.other_access:
            return "Two threads write the same place: each place belongs to one thread."
        who = [
            f"{thread(index).capitalize()} of thread block {block[0]}"
            + (f", {block[1]}" if block[1] else "")
            for index, block in (
                (found.thread, found.thread_block),
                (found.other_thread, found.other_thread_block),
            )
        ]
        does = {"load": "reads", "store": "writes", "atomic": "changes"}
        if not meeting:
            return (
                f"{who[0]} and {who[1].lower()} meet. No block is both source and target here, so "
                "what you take for two blocks overlaps: block b begins at unit b * size."
            )
        told = (
            f"{who[0]} {does[found.access]} what {who[1].lower()} {does[found.other_access]}. "
            f"Block {found.offset // block_bytes} is the target of one pair and the "
            "source of another, and there is no order between threads. One thread that takes the "
            "same place through all pairs has an order: that of its own lines."
        )
        return told

    return {
        "race": race,
        "out_of_bounds": (f"Block b begins at b * size, and its places end at size - 1. {PLACES}"),
        "misaligned": "Count in units of V: a block has `size` of them.",
    }


def costs(path: Path) -> None:
    import torch

    pools = pools_of((16, 2, 32), 2)
    with given("blocks of 4,096 bytes in units of 16, 1 thread block"):
        report = report_of(path, NAME, pools, torch.tensor(APART), 2, 2, 4096, 16, 1)
        for access in report.accesses:
            if access.units > access.ideal_units:
                fail(
                    f"line {access.line}: a request of {access.name} costs "
                    f"{access.per_request:.3g} sectors, and {access.ideal:.3g} would do: the "
                    "threads of a warp should take neighboring places in each turn of the loop.",
                    picture=partial(_drawn, access),
                )


def _drawn(access: Any) -> Any:
    from yaie.course.viz.memory import draw_access

    return draw_access(access)


def draw_copies(path: Path) -> Any:
    """What each line costs a warp."""
    import torch

    from yaie.course.viz.memory import draw_costs

    pools = pools_of((16, 2, 32), 2)
    return draw_costs(report_of(path, NAME, pools, torch.tensor(APART), 2, 2, 4096, 16, 2))
