"""The check of 14.3: shuffles with every lane in them, and a total that every thread knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    ROUNDING,
    SUFFIXES,
    dtypes,
    element_of,
    on_every_schedule,
    race_in_words,
    report_of,
    require_cheap,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import close, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

# rows, columns, thread blocks, threads of each
CASES = (
    *((1, 32, 1, 32), (1, 64, 1, 64), (1, 90, 1, 64), (5, 70, 2, 64), (3, 33, 3, 96)),
    *((2, 1, 1, 32), (2, 1025, 2, 160), (2, 1100, 1, 1024), (0, 8, 1, 32)),
)

COSTS = {
    "global load": "Neighboring threads should read neighboring columns.",
    "global store": "Neighboring threads should write neighboring columns.",
    "shared load": "A warp reads at most 32 neighboring numbers of shared memory.",
    "shared store": "One lane of each warp writes one number.",
}


MASK = "The mask names the lanes that take part, one bit each, and all 32 do: 0xffffffff."
ABSENT = (
    "All lanes that the mask names have to come to the same shuffle. A thread without a column, or "
    "without a warp's sum to add, comes too and brings a 0."
)


def check_normalize(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for case in CASES:
            run(path, *case, order, explain)

    on_every_schedule(values)
    for name, suffix in SUFFIXES.items():
        run(path, 3, 2000, 3, 256, "forward", explain, suffix, ROUNDING[name])
    x, out = inputs(4, 512, "f32")
    with given("4 × 512, 2 thread blocks of 128 threads"):
        report = report_of(path, "normalize_rows_f32", x, out, 4, 512, 2, 128)
        require_cheap(report, COSTS)
    if not re.search(r"__shfl\w*_sync|__reduce_add_sync|\.shfl", without_comments(path)):
        fail(
            "The result is right, and no lane has handed a register to another: use "
            "__shfl_xor_sync or __shfl_down_sync for the sum over a warp."
        )


def without_comments(path: Path) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def inputs(rows: int, columns: int, suffix: str) -> tuple[Any, Any]:
    import torch

    dtype = dtypes()[suffix]
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(columns)) + 0.5
    return x.to(dtype), poisoned(rows, columns, dtype=dtype)


def run(
    path: Path,
    rows: int,
    columns: int,
    blocks: int,
    threads: int,
    order: str,
    explain: Explain,
    suffix: str = "f32",
    rtol: float = 1e-5,
) -> None:
    x, out = inputs(rows, columns, suffix)
    words = f"{rows} × {columns}, {blocks} thread block{'s' * (blocks > 1)} of {threads} threads"
    with given(f"{words}, in {order} order"):
        launch(
            path, f"normalize_rows_{suffix}", x, out, rows, columns, blocks, threads,
            explain=explain, order=order,
        )  # fmt: skip
        compare(x, out, threads, rtol)


def compare(x: Any, out: Any, threads: int, rtol: float) -> None:
    import torch

    wide = x.double()
    whole = x.shape[1] // 32 * 32

    def divided(total: Any) -> Any:
        return (wide / total).to(x.dtype)

    wanted = divided(wide.sum(-1, keepdim=True))
    owner = torch.arange(x.shape[1]) % threads // 32  # the warp that has a column
    of_warp = torch.stack([wide[:, owner == w].sum(-1) for w in range(threads // 32)], dim=-1)
    total = wide.sum(-1, keepdim=True)
    mistakes = [
        (divided(of_warp[:, :1]), "Each thread divided by the sum of warp 0: the sums of the other "
         "warps are still missing."),
        (divided(of_warp[:, owner]), "Each warp divided by its own sum: the warps' sums have to be "
         "added up, through of_warp."),
        (divided(wide[:, :whole].sum(-1, keepdim=True)), f"The sum ends at column {whole}, where "
         f"the last whole warp ends: the {x.shape[1] - whole} columns after it belong to a warp "
         "in which not every lane has a column. Such a lane takes part with a 0."),
        ((wide * total).to(x.dtype), "That is multiplied with the sum."),
        (x, "That is x itself: the sum is missing."),
    ] if x.numel() else []  # fmt: skip
    because = told_of_threads(out, wanted, threads, rtol)
    close(out, wanted, "out", because=because, mistakes=mistakes, rtol=rtol)


def told_of_threads(out: Any, wanted: Any, threads: int, rtol: float) -> str:
    """Which threads were right: only thread 0, or only lane 0 of each warp."""
    import torch

    if out.isnan().any():
        return "NaN was there before: nobody wrote it."
    right = torch.isclose(out.double(), wanted.double(), rtol=rtol).all(0)
    owner = torch.arange(len(right)) % threads
    if len(right) > 1 and torch.equal(right, owner % 32 == 0):
        return (
            "Only the columns of lane 0 of each warp are right. __shfl_down_sync gathers the sum "
            "in lane 0; __shfl_xor_sync gives it to every lane."
        )
    if len(right) > 1 and torch.equal(right, owner == 0):
        return "Only the columns of thread 0 are right: it knows the total, and all need it."
    if len(right) > 32 and torch.equal(right, owner < 32):
        return "Only the columns of warp 0 are right: it knows the total, and all warps need it."
    if threads == 32:
        return "Five exchanges, with the steps 16, 8, 4, 2 and 1, join all lanes of a warp."
    return ""


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Two threads write the same element of out."
        words = race_in_words(found, element_of(found, path, {}, 4))
        if found.access == found.other_access == "store":
            return f"{words} One lane of each warp writes, into a place of its warp's own."
        return (
            f"{words} Two barriers are due in each row: before the warps' sums are read, and "
            "after, before the next row overwrites them."
        )

    return {
        "race": race,
        "wrong_mask": MASK,
        "inactive_lane": lambda found: MASK if "not in the mask" in found.message else ABSENT,
        "divergent_collective": "The lanes of a warp meet at one shuffle, not at two.",
        "deadlock": (
            "A shuffle waits for all lanes in its mask. Do all 32 come to it, or is it in an `if` "
            "that only some take?"
        ),
        "divergent_barrier": (
            "Every thread of the thread block comes to every __syncthreads(), also one that has "
            "no column."
        ),
        "uninitialized": (
            "Of the 32 places only as many are written as there are warps: a lane beyond that "
            "adds 0, not what lies there."
        ),
    }


def draw_normalize(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    x, out = inputs(4, 512, "f32")
    return draw_costs(report_of(path, "normalize_rows_f32", x, out, 4, 512, 2, 128))
