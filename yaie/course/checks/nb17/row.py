"""The check of 17.1: the online softmax of a warp, one score at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb17.common import (
    Problem,
    arguments,
    attend,
    requests,
    run,
    seen_by,
    wrong,
)
from yaie.course.core.cuda import Explain
from yaie.course.core.expect import fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

NAME = "flash_row"
SMALL = (
    Problem(((1, 1),)),
    Problem(((2, 5),), rising=True),
    Problem(((3, 9),), heads=2, kv_heads=1),
    Problem(((5, 7),), heads=2, kv_heads=2, causal=True),
)
OTHERS = (
    Problem(((2, 6),), size=400.0),
    Problem(((2, 6),), below=True),
    Problem(((4, 2),), causal=True),
    Problem(((2, 3), (0, 4), (5, 6)), causal=True),
    Problem(((2, 9), (3, 5)), heads=2, kv_heads=1, causal=True, block_size=4),
    Problem(((3, 4),), dim=33),
    Problem(((3, 4),), dim=100),
    Problem(((5, 6),), dim=40, suffix="f16"),
    Problem(((5, 6),), dim=40, suffix="bf16"),
)
COUNTED = Problem(((6, 11),), dim=64, causal=True)

BECAUSE = (
    "With weights exp(score - maximum), out is the sum of weight × value, divided by the sum of "
    "the weights; both sums are scaled down by exp(old maximum - new maximum) whenever the maximum "
    "grows."
)


def check_row(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for problem in SMALL:
            run(path, NAME, problem, explain, mistakes(problem), BECAUSE, order)

    on_every_schedule(values)
    for problem in OTHERS:
        run(path, NAME, problem, explain, mistakes(problem), BECAUSE)
    costs(path)


def mistakes(problem: Problem) -> Iterator[tuple[Any, str]]:
    """Outputs that are likely, and what they come from."""
    told = {
        "sums": "The sum of values was not scaled down when a larger maximum came: all that was "
        "added before still counts as if the old maximum had been the largest.",
        "total": "The total was not scaled down when a larger maximum came.",
        "total and sums": "Neither the total nor the sum of values was scaled down when a larger "
        "maximum came.",
        "not divided": "That is not divided by the total.",
        "so far": "Each weight was divided by the total at that time. Later weights make the total "
        "larger, so the division waits until the last key is in.",
        "each tile": "Each weight was divided by itself: the values were added up as they are.",
        "no weights": "The values were added up without their weights.",
        "no scale": "The scores are not scaled: `flash.scale` is missing.",
        "all keys": "Some queries have seen keys that they must not see: a query sees the first "
        "`seen` keys.",
        "same place": "That is attention over the keys of the first sequence. Key `key` of this "
        "sequence lies at `sequence.place(key, flash.block_size)`.",
        "last tile": "That is the value of the last key alone: what came before was lost.",
    }  # fmt: skip
    for fault, text in told.items():
        yield wrong(problem, 1, fault)[0], text
    if problem.kv_heads > 1:
        text = "Every head has read KV head 0: a row of k begins `of_head` elements further."
        yield attend(problem, kv_head=lambda head: 0)[0], text


def costs(path: Path) -> None:
    """Each key and each value is asked for once."""
    given_arguments, _ = arguments(COUNTED)
    with given(str(COUNTED)):
        report = report_of(path, f"{NAME}_f32", *given_arguments)
        queries, _ = COUNTED.lengths[0]
        parts = COUNTED.dim // 32
        needed = parts * sum(seen_by(COUNTED, 0, query) for query in range(queries))
        for name in ("k", "v"):
            asked = requests(report, name)
            if asked > needed:
                fail(
                    f"the result is right, but {name} was asked for {asked} times, and {needed} "
                    "would do: a key and its value are read once, while the maximum is not yet "
                    "final. The correction makes up for that."
                )


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        if found.name == "lse":
            return "All 32 lanes know the log-sum-exp, and one of them writes it."
        return "A warp writes its own row of out, each lane its own elements."

    def absent(found: Finding) -> str:
        return "All 32 lanes have to come to `dot`: they differ in elements of a row, not in keys."

    def bounds(found: Finding) -> str:
        if found.name in ("k", "v"):
            return (
                "A key's row begins `place` strides behind k, and its KV head `of_head` elements "
                "further; `sequence.place` says the place of key `key`, from 0 to seen - 1."
            )
        return "out has head_dim elements a row, lse one: their row is `row`."

    return {
        "race": race,
        "out_of_bounds": bounds,
        "inactive_lane": absent,
        "wrong_mask": absent,
        "deadlock": absent,
        "divergent_collective": absent,
        "divergent_barrier": "No warp waits for another here: there is nothing to wait for.",
    }


def draw_row(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    given_arguments, _ = arguments(COUNTED)
    return draw_costs(report_of(path, f"{NAME}_f32", *given_arguments))
