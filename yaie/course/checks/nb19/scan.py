"""The check of 19.1: right for any length and any width, no race, about 2 × n additions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, race_in_words, report_of
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

# numbers, threads of the thread block
CASES = ((1, 1), (2, 1), (8, 4), (5, 4), (3, 4), (64, 32), (100, 64), (9, 2), (130, 16), (0, 4))
TIMED = (512, 256)
MOST_TOUCHED = 9000  # places that are read or written: up and down take about 9 for each number
MOST_REQUESTS = 900


def check_blelloch(path: Path) -> None:
    example = [1, 2, 3, 4]
    run(path, example, 2, "forward")
    on_every_schedule(lambda order: [run(path, drawn(n), t, order) for n, t in CASES])
    n, threads = TIMED
    x, out = ints(drawn(n)), poisoned(n + 1, dtype=ints([]).dtype)
    with given(f"{n} numbers, {threads} threads"):
        require_work(report_of(path, "blelloch_i32", x, out, n, threads))


def drawn(n: int) -> list[int]:
    draw = random.Random(n)
    return [draw.randrange(1, 10) for _ in range(n)]


def ints(values: list[int]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.int32)


def run(path: Path, x: list[int], threads: int, order: str) -> None:
    n = len(x)
    numbers, out = ints(x), poisoned(n + 1, dtype=ints([]).dtype)
    words = str(x) if n <= 8 else f"{n} numbers"
    with given(f"{words}, {threads} thread{'s' * (threads > 1)}, in {order} order"):
        launch(path, "blelloch_i32", numbers, out, n, threads, explain=explanations(), order=order)
        compare(x, out.tolist(), 2 * threads)


def compare(x: list[int], out: list[int], width: int) -> None:
    wanted = [sum(x[:i]) for i in range(len(x) + 1)]
    least = poisoned(1, dtype=ints([]).dtype).item()
    because = "out[i] is the sum of the numbers before i, and out[n] the sum of all."
    if out[:-1] == wanted[:-1] and out[-1] == least:
        because = "Nobody wrote out[n]: it takes the sum of all numbers."
    elif least in out:
        because = (
            f"{least} was there before: nobody wrote it. A tile has {width} numbers, two for each "
            "thread, and there may be several tiles."
        )
    equal(out, wanted, "out", because=because, mistakes=mistakes(x, wanted, width))


def mistakes(x: list[int], wanted: list[int], width: int) -> list[tuple[list[int], str]]:
    """What known wrong scans give, each with its explanation."""
    shifted = [0, *wanted[:-1]]
    tiles = [x[i : i + width] for i in range(0, len(x), width)]
    restarted = [sum(tile[:i]) for tile in tiles for i in range(len(tile))]
    no_carry = [*restarted, sum(tiles[-1])] if tiles else [0]
    return [
        (shifted, "It is shifted and exclusive: what the way down leaves in place i is the sum "
         "before i already, so it belongs in out[i], and out[n] is the sum of all."),
        ([*wanted[1:], wanted[-1]], "It is the inclusive sum: out[i] takes what lies before i, "
         "without x[i] itself, so out[0] is 0."),
        (by_tiles(x, width, "up"), "These are the sums of groups that the way up leaves behind. "
         "The way down makes prefix sums of them."),
        (by_tiles(x, width, "root"), "All of them are too large by the sum of all. Nothing lies "
         "before the group of all: its last place has to be 0 before the way down begins."),
        (by_tiles(x, width, "no swap"), "On the way down the left half has to be given what lies "
         "before the group; only the right half's place was changed."),
        (by_tiles(x, width, "overwritten"), "On the way down the left half's sum is overwritten "
         "before it is added to the right half's: keep it in a variable first."),
        (by_tiles(x, width, "order"), "On the way down the large groups come first: each hands its "
         "halves what they need for theirs."),
        (no_carry, "Each tile begins at 0: what the tiles before it add up to has to be added to "
         "all of its sums."),
    ]  # fmt: skip


def by_tiles(x: list[int], width: int, mistake: str) -> list[int]:
    """Blelloch's scan with one mistake."""
    out, carry = [], 0
    for first in range(0, len(x), width):
        tile = x[first : first + width]
        sums = tile + [0] * (width - len(tile))
        total = sweep(sums, mistake)
        out += [carry + number for number in sums[: len(tile)]]
        carry += total
    return [*out, carry]


def sweep(sums: list[int], mistake: str) -> int:
    width = len(sums)
    halves = [1 << step for step in range(width.bit_length() - 1)]
    for half in halves:
        for last in range(2 * half - 1, width, 2 * half):
            sums[last] += sums[last - half]
    total = sums[-1]
    if mistake == "up":
        return total
    if mistake != "root":
        sums[-1] = 0
    for half in halves if mistake == "order" else reversed(halves):
        for last in range(2 * half - 1, width, 2 * half):
            left = sums[last - half]
            if mistake != "no swap":
                sums[last - half] = sums[last]
            sums[last] += sums[last - half] if mistake == "overwritten" else left
    return total


def require_work(report: Any) -> None:
    """Reject a scan by one thread, and one that adds n × log2(n) times."""
    shared = [a for a in report.accesses if a.memory == "shared"]
    requests, touched = sum(a.requests for a in shared), sum(a.lanes for a in shared)
    if touched > MOST_TOUCHED:
        fail(
            f"the sums are right, but the threads touched {touched:,} places of `sums`. If every "
            "number takes part in every step, that is about n × log2(n) additions. Up and down a "
            "tree, half as many pairs are left after each step: 2 × n additions in all, and about "
            "4,600 places."
        )
    if requests > MOST_REQUESTS:
        fail(
            f"the sums are right, but it took the warps {requests:,} requests to shared memory: "
            "a few threads do it all, and the others watch. In the first step of the way up every "
            "thread has a pair."
        )


def explanations() -> Explain:
    def race(found: Finding) -> str:
        if found.memory == "global":
            return "Two threads write the same sum: thread 0 alone writes out[n]."
        name = "total" if found.name == "total" else f"sums[{found.offset // 4}]"
        return (
            f"{race_in_words(found, name)} After every step all threads have to wait: the next "
            "step reads what others have written."
        )

    return {
        "race": race,
        "uninitialized": (
            "A tile has two numbers for each thread, and places beyond the last number count as "
            "0: fill all 2 × blockDim.x of them."
        ),
        "out_of_bounds": lambda found: (
            "A tile has 2 × blockDim.x places."
            if found.memory == "shared"
            else "x has n numbers, the last one at n - 1, and out has n + 1."
        ),
        "divergent_barrier": (
            "A thread that has no pair in a step still has to come to its __syncthreads(): keep it "
            "out of the `if`."
        ),
    }


def draw_blelloch(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    n, threads = TIMED
    x, out = ints(drawn(n)), poisoned(n + 1, dtype=ints([]).dtype)
    return draw_costs(report_of(path, "blelloch_i32", x, out, n, threads))
