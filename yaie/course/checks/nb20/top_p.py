"""The check of 20.3: the threshold of top-p, refined 8 bits at a time."""

from __future__ import annotations

import bisect
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    dtypes,
    element_of,
    on_every_schedule,
    race_in_words,
)
from yaie.course.core.cuda import Explain, compiled, launch, poisoned
from yaie.course.core.expect import equal, given, true

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

SIZES = ((1, 1), (5, 1), (40, 2), (256, 3), (700, 2))
PARTS = (0.05, 0.5, 0.7, 0.9, 0.97)  # of the mass, one for each row
UNIT = 2.0**24


def check_top_p(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for columns, blocks in SIZES:
            run(path, columns, blocks, order, explain)

    on_every_schedule(values)
    ties(path, explain)
    for suffix in dtypes():
        run(path, 3000, 5, "forward", explain, suffix)


def inputs(columns: int, suffix: str = "f32") -> tuple[Any, Any, Any]:
    """Logits on both sides of zero, their maxima, and what has to be kept.

    `enough` is in the middle of a token's mass: rounding of exp cannot move it to another.
    """
    import torch

    x = torch.randn(len(PARTS), columns, generator=torch.Generator().manual_seed(columns))
    x = x.to(dtypes()[suffix])
    best = x.float().amax(1)
    enough = []
    for row, part, top in zip(x, PARTS, best, strict=True):
        _, cumulative = masses(row, float(top))
        place = bisect.bisect_left(cumulative, part * cumulative[-1])
        before = cumulative[place - 1] if place else 0
        enough.append((before + cumulative[place]) // 2)
    return x, best, torch.tensor(enough)


def masses(row: Any, best: float) -> tuple[list[float], list[int]]:
    """The different logits of a row, descending, and the mass of all down to each."""
    values = sorted(row.double().tolist(), reverse=True)
    each = (((row.double() - best).exp() * UNIT + 0.5).long()).tolist()
    by_value: dict[float, int] = dict.fromkeys(values, 0)
    for value, mass in zip(row.double().tolist(), each, strict=True):
        by_value[value] += mass
    return list(by_value), list(itertools.accumulate(by_value.values()))


def call(
    path: Path, given_: tuple, blocks: int, explain: Explain, order: str = "forward",
    suffix: str = "f32", checked: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    import torch

    x, best, enough = given_
    threshold, above = poisoned(len(x)), poisoned(len(x), dtype=torch.int64)
    launch(
        path, f"top_p_threshold_{suffix}", x, best, enough, threshold, above, *x.shape, blocks,
        explain=explain, order=order, checked=checked,
    )  # fmt: skip
    return threshold, above


def run(
    path: Path, columns: int, blocks: int, order: str, explain: Explain, suffix: str = "f32"
) -> None:
    arguments = inputs(columns, suffix)
    words = f"{len(PARTS)} rows of {columns} logits, {blocks} thread block{'s' * (blocks > 1)}"
    with given(f"{words}, in {order} order"):
        found = call(path, arguments, blocks, explain, order, suffix, columns < 1000)
        compare(arguments, *found)


def compare(arguments: tuple, threshold: Any, above: Any) -> None:
    import torch

    x, best, enough = arguments
    right, before, earlier, later, coarse = [], [], [], [], []
    for row, top, part in zip(x, best.tolist(), enough.tolist(), strict=True):
        values, cumulative = masses(row, top)
        place = bisect.bisect_left(cumulative, part)
        right.append(values[place])
        before.append(cumulative[place - 1] if place else 0)
        earlier.append(values[max(place - 1, 0)])
        later.append(values[min(place + 1, len(values) - 1)])
        coarse.append([cut(values[place], bits) for bits in (8, 16, 24)])
    if threshold.isnan().any():
        true(False, "threshold still has NaN, which was there before: nobody wrote it.")
    mistakes = [
        (torch.tensor(earlier), "That is the token before it. The one that crosses has to be kept: "
         "stop at the first bin with which the mass *reaches* what is wanted."),
        (torch.tensor(later), "That is the token after it: the bins stop one too late."),
        (x.float().amax(1), "That is the maximum of each row."),
        (x.float().amin(1), "That is the minimum of each row: are the bins counted from the side "
         "of the largest logits?"),
        *((torch.tensor([row[i] for row in coarse]), f"Only the first {bits} bits of the key are "
           "known: go on until all 32 are.") for i, bits in enumerate((8, 16, 24))),
    ]  # fmt: skip
    digits = (
        "Check, in this order: that a histogram begins with zeros; that after the first round only "
        "keys that begin with `prefix` are counted; and that the mass of the bins passed over is "
        "kept from round to round."
    )
    equal(threshold, torch.tensor(right), "threshold", because=digits, mistakes=mistakes)
    slack = x.shape[1] + 1  # exp may be rounded otherwise
    wrong = (above - torch.tensor(before)).abs() > slack
    if wrong.any():
        row = int(wrong.nonzero()[0])
        both = int(above[row]) == enough[row]
        equal(
            int(above[row]), before[row], f"above[{row}]",
            because="That is what is wanted, not what lies above." if both else
            "It is the mass of all tokens larger than the threshold, in all four rounds together.",
        )  # fmt: skip


def cut(value: float, bits: int) -> float:
    """The float whose key has the first bits of this one's key, and zeros."""
    import torch

    word = torch.tensor(value).view(torch.int32).item() & 0xFFFFFFFF
    key = word if word >> 31 else ~word & 0x7FFFFFFF
    key &= ~((1 << 32 - bits) - 1)
    word = key if key >> 31 else ~key & 0x7FFFFFFF
    return torch.tensor(word - (word >> 31 << 32), dtype=torch.int32).view(torch.float32).item()


def ties(path: Path, explain: Explain) -> None:
    """Equal logits share a key: the threshold is theirs, and none of them lies above it."""
    import torch

    x = torch.tensor([[1.0, 0.0, 0.0, 0.0, -0.0, -1.0], [-2.0] * 6])
    best = torch.tensor([1.0, -2.0])
    enough = torch.tensor([int(UNIT * 2), int(UNIT * 2.5)])
    with given("rows of equal logits"):
        threshold, above = call(path, (x, best, enough), 1, explain)
        because = "Equal logits lie in one bin to the end."
        equal(threshold.tolist(), [0.0, -2.0], "threshold", because=because)
        because = "`above` counts larger logits only, none of those that tie."
        equal(above.tolist(), [int(UNIT), 0], "above", because=because)
    with given("a row whose first token has exactly the mass that is wanted"):
        arguments = torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([3.0]), torch.tensor([int(UNIT)])
        threshold, above = call(path, arguments, 1, explain)
        because = "A mass that is reached exactly is reached: no further token is needed."
        equal((threshold.item(), above.item()), (3.0, 0), "threshold and above", because=because)


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Several threads write the same result: let thread 0 do it."
        words = race_in_words(found, element_of(found, path, {"BINS": 256, "THREADS": 256}, 8))
        if "atomic" in (found.access, found.other_access):
            return (
                f"{words} A barrier is due between zeros and counting, one between counting and "
                "reading."
            )
        if found.line == found.other_line or found.access == found.other_access == "store":
            return f"{words} Many tokens fall into one bin: add with atomicAdd."
        return (
            f"{words} Three barriers are due in each round: after the zeros, after counting, and "
            "after reading, before the next round's zeros."
        )

    def outside(found: Finding) -> str:
        if found.memory == "global":
            return "A row has `columns` logits, the last one at columns - 1."
        races = compiled(path, checked=True).report.races
        if races:  # bins were cleared late, or read early: the search found less than there is
            return race(races[0])
        return (
            "The search ran past bin 255. It ends in a bin for certain if the mass before it is "
            "carried along, and every bin's mass is that of this row and this prefix. In the first "
            "round every key counts: say so, since a shift by 32 bits is undefined."
        )

    return {
        "race": race,
        "uninitialized": "A histogram begins with zeros: every thread clears one bin, each round.",
        "divergent_barrier": "Every thread comes to every barrier, with a column or not.",
        "out_of_bounds": outside,
        "time_limit": "Does the search for the bin stop, and does `shift` reach 0?",
    }


def draw_top_p(path: Path) -> Any:
    """The four rounds: which bins held mass, and where the threshold was."""
    import torch

    from yaie.course.viz.draws import draw_rounds, rounds

    x = (torch.randn(400, generator=torch.Generator().manual_seed(20)) * 2).unsqueeze(0)
    best = x.amax(1)
    mass = ((x - best).double().exp() * UNIT + 0.5).long()
    enough = (mass.sum(1) * 0.8).long()
    threshold, _ = call(path, (x, best, enough), 1, {}, checked=False)
    return draw_rounds(rounds(x[0].tolist(), mass[0].tolist(), float(threshold[0])))
