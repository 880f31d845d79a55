"""19.2: each key loaded once, by one team of lanes, for all query heads that share it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, accesses, in_every_order, operator_by
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb19 import paged

fit = operator_by("yaie.course.lessons.ops.cuda.attention_paged:grouped")
NAME = "paged_grouped"

BECAUSE = (
    "Every key below context.length counts once for each head. Team n of a warp, n = "
    "team.number(), takes key first + n; then all go on by WARPS * team.teams_per_warp()."
)
FAR = "Where a row begins in a pool needs 64 bits: an int ends at 2³¹ - 1."
EXPLAIN = {
    "out_of_bounds": paged.OUTSIDE,
    "misaligned": "A row begins at (slot * paged.kv_heads + kv_head) * paged.head_dim.",
    "shuffle": (
        "team.sum is a shuffle, and all 32 lanes of the warp have to reach it, also those whose "
        "team has no key in this iteration. Let the number of iterations depend on the warp alone, "
        "and skip only the loads and `add`."
    ),
    "divergent_barrier": (
        "finish has a barrier: all threads of the thread block have to reach it, after the loop."
    ),
    "race": (
        "finish uses shared memory, so call it once, after the loop. The first row of this thread "
        "block is paged.out + row * paged.head_dim, and paged.lse + row."
    ),
}


def cases() -> Iterator[KernelCase]:
    yield paged.planned("1 token", (1,), heads=1)
    yield paged.planned("8 tokens, one for each team of a warp", (8,), heads=1)
    yield from in_every_order(
        paged.planned("1 and 16 tokens", (1, 16)), paged.planned("21 and 70 tokens", (21, 70))
    )
    yield paged.planned("0, 7 and 0 tokens", (0, 7, 0))
    yield paged.planned("4 query heads for 2 KV heads", (21, 9), heads=4, kv_heads=2)
    yield paged.planned("12 query heads for 1 KV head, 8 at a time", (21, 9), heads=12)
    for dim in (64, 128, 20):
        yield paged.planned(f"heads of {dim}", (40, 3), heads=3, dim=dim)
    yield paged.planned("150 tokens in 38 blocks", (150, 9))
    yield paged.planned("scores of several hundred", (50, 70), spread=300.0, because=paged.OVERFLOW)
    for dtype in ("float16", "bfloat16"):
        yield paged.planned(dtype, (60, 0, 3), heads=4, dtype=dtype)
    yield paged.planned(
        "a block that begins at element 2³¹ of the pools", make=paged.far, because=FAR
    )
    words = "contexts of 32 and 64 tokens, 4 query heads for 1 KV head"
    sizes = {"heads": 4, "dim": 64, "block_size": 16, "dtype": "float16"}
    yield paged.planned(words, (32, 64), costs=True, **sizes)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    batch = case.make()
    out, lse, report = paged.call(see, path, NAME, case, batch, EXPLAIN)
    paged.see_result(see, batch, out, lse, case.because or BECAUSE)
    if not case.costs:
        return
    once = sum(keys.numel() * keys.element_size() for keys in batch.keys)
    for name in ("key_pool", "value_pool"):
        lines = accesses(report, name=name, kind="load")
        see.picture(partial(draw_worst, lines))
        loaded = sum(access.lanes * access.size for access in lines)
        because = "One team takes a key and loads its rows before the loop over heads."
        see.at_most(f"the number of bytes of {name} that are loaded", loaded, once, because)


def draw_worst(lines: list[Any]) -> Any:
    from yaie.course.viz.memory import draw_access

    return draw_access(max(lines, key=lambda access: access.lanes))


def draw(path: Path) -> Any:
    """What each line costs a warp."""
    batch = paged.batch_of((100,), 4, dim=64, block_size=16, dtype="float16")
    return paged.draw_rung(path, NAME, batch)
