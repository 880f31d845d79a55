"""21.3: the threshold of top-p, refined 8 bits at a time, beside a sort."""

import bisect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb21.sample import UNIT, operator_by
from yaie.emulator.checks import Finding

fit = operator_by("top_p_threshold")
SIZES = ((1, 1), (5, 1), (40, 2), (256, 3), (700, 2))  # columns, thread blocks
PARTS = (0.05, 0.5, 0.7, 0.9, 0.97)  # of the mass, one for each row
FIRST = "The masses of the logits down to it, in descending order, first reach `wanted`."
# Rows, what is wanted of each, the thresholds, the masses above them, and why.
PLANNED = {
    "rows of equal logits": (
        [[1.0, 0.0, 0.0, 0.0, -0.0, -1.0], [-2.0] * 6], [2 * UNIT, 5 * UNIT // 2],
        [0.0, -2.0], [UNIT, 0],
        "Equal logits share a key, and `above` counts larger logits only.",
    ),
    "a row whose first token has exactly the mass that is wanted": (
        [[1.0, 3.0, 0.0]], [UNIT], [3.0], [0],
        "A mass that is reached exactly is reached: no further token is needed.",
    ),
    "a likely token, and ten tokens of mass 1": (
        [[0.0, *(-16.3 - i / 16 for i in range(10))]], [UNIT + 5], [-16.3 - 4 / 16], [UNIT + 4],
        f"Five tokens of mass 1 are needed besides {UNIT:,}: a float has 24 bits, too few for it.",
    ),
    "300 equal logits, and 300 that are 1 less": (
        [[1.0] * 300 + [0.0] * 300], [300 * UNIT + UNIT // 2], [0.0], [300 * UNIT],
        f"The mass of the larger ones is {300 * UNIT:,}, more than 32 bits hold.",
    ),
}  # fmt: skip


def cases() -> Iterator[KernelCase]:
    yield from cuda.in_every_order(*(random_rows(*size) for size in SIZES))
    for name, (rows, *wanted, because) in PLANNED.items():
        yield case(name, torch.tensor(rows), *wanted, because=because, blocks=1, slack=0)
    for suffix in ("f32", "f16", "bf16"):
        yield random_rows(3000, 5, suffix, how={"checked": False})


def random_rows(columns: int, blocks: int, suffix: str = "f32", **data: Any) -> KernelCase:
    words = f"{len(PARTS)} rows of {columns} logits of {suffix}"
    name = f"{words}, {blocks} thread block{'s' * (blocks > 1)}"
    slack = columns + 1  # exp may be rounded otherwise
    planned = drawn(columns, suffix)
    return case(name, *planned, because=FIRST, blocks=blocks, slack=slack, suffix=suffix, **data)


def case(
    name: str, x: Any, wanted: list[int], threshold: list[float], above: list[int], **data: Any
) -> KernelCase:
    """A case of `x`: for each row the mass wanted, the right threshold and the mass above it."""
    return KernelCase(name, x=x, wanted=wanted, threshold=threshold, above=above, **data)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    x, best = case.x, case.x.float().amax(1)
    threshold, above = cuda.poisoned(len(x)), cuda.poisoned(len(x), dtype=torch.int64)
    cuda.run(
        see, path, f"top_p_threshold_{case.suffix}", x, best, torch.tensor(case.wanted), threshold,
        above, *x.shape, case.blocks, explain=EXPLAIN, causes=("race",), **case.how,
    )  # fmt: skip
    want = torch.tensor(case.threshold)
    see.equal("threshold", threshold, want, cuda.unwritten(threshold, case.because))
    wrong = (
        f"is {mass} in row {row}, expected {want}"
        for row, (mass, want) in enumerate(zip(above.tolist(), case.above, strict=True))
        if abs(mass - want) > case.slack
    )
    larger = "It is the mass of all tokens larger than the threshold, in all four rounds together."
    because = larger if case.slack else case.because
    see.note("above", above.tolist(), next(wrong, ""), because)


def drawn(columns: int, suffix: str) -> tuple[Any, list[int], list[float], list[int]]:
    """Logits on both sides of zero, what is wanted, and what a sort finds.

    What is wanted is in the middle of a token's mass: rounding of exp cannot move it to another.
    """
    x = torch.randn(len(PARTS), columns, generator=torch.Generator().manual_seed(columns))
    x = x.to(cuda.dtype_of(suffix))
    wanted, thresholds, above = [], [], []
    for row, part in zip(x.double(), PARTS, strict=True):
        values, cumulative = masses(row)
        place = bisect.bisect_left(cumulative, part * cumulative[-1])
        above.append(cumulative[place - 1] if place else 0)
        wanted.append((above[-1] + cumulative[place]) // 2)
        thresholds.append(values[place])
    return x, wanted, thresholds, above


def masses(row: Any) -> tuple[list[float], list[int]]:
    """The different logits of a row, descending, and the mass of all down to each."""
    each = ((row - row.amax()).exp() * UNIT + 0.5).long().tolist()
    by_value: dict[float, int] = {}
    for value, mass in sorted(zip(row.tolist(), each, strict=True), reverse=True):
        by_value[value] = by_value.get(value, 0) + mass
    return list(by_value), list(itertools.accumulate(by_value.values()))


def _out_of_bounds(found: Finding) -> str:
    if found.memory == "global":
        return "A row has `columns` logits, the last one at columns - 1."
    if found.access != "load":
        return (
            "A bin's number is 8 bits of the key: shift them down, and drop the bits above them "
            "with `& 255`."
        )
    return (
        "The search ran past bin 255. It ends in a bin if the mass before it is carried along "
        "as an integer, and each bin holds the masses of this row and this prefix."
    )


def _race(found: Finding) -> str:
    if found.memory == "global":
        return "Thread 0 alone writes the result."
    return (
        "Each round needs three barriers: after the zeros, after counting, and after reading, "
        "before the next round's zeros. Counting adds with atomicAdd."
    )


EXPLAIN: cuda.Explain = {
    "race": _race,
    "uninitialized": "A histogram begins with zeros: every thread clears one bin in each round.",
    "divergent_barrier": "Every thread has to reach every barrier, with a column or without one.",
    "out_of_bounds": _out_of_bounds,
    "shift": "In the first round no bits of the key are found yet: every key is counted.",
}


def draw(path: Path) -> Any:
    """The four rounds: which bins held mass, and where the threshold was."""
    from yaie.course.viz.draws import draw_rounds, rounds

    x = (torch.randn(400, generator=torch.Generator().manual_seed(20)) * 2).unsqueeze(0)
    best = x.amax(1)
    mass = ((x - best).double().exp() * UNIT + 0.5).long()
    enough = (mass.sum(1) * 0.8).long()
    threshold, above = cuda.poisoned(1), cuda.poisoned(1, dtype=torch.int64)
    cuda.compiled(path).top_p_threshold_f32(x, best, enough, threshold, above, *x.shape, 1)
    return draw_rounds(rounds(x[0].tolist(), mass[0].tolist(), float(threshold[0])))
