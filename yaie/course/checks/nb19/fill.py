"""The check of 19.2: each token's request by bisection, at any batch, in thread blocks of any."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import on_every_schedule, report_of
from yaie.course.checks.nb19.scan import ints
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import equal, fail, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

TOPK = 9
# new tokens of each request, keys of each
EXAMPLES = (
    ([3, 2], [10, 4]),
    ([0, 0, 3, 0, 2, 0], [7, 1, 10, 5, 4, 8]),
    ([1], [1]),
    ([4, 3], [2, 9]),
    ([0, 6], [3, 0]),
)
BATCHES = (17, 64, 255, 1023, 1024, 1025)
MOST_READS = 40  # of ends by a warp, for 1,024 requests: 10 steps, and a few


def check_fill(path: Path) -> None:
    def values(order: str) -> None:
        for lengths, keys in EXAMPLES:
            run(path, lengths, keys, order)
        run(path, [3, 2], [10, 4], order, more=3)

    on_every_schedule(values)
    for batch in BATCHES:
        run(path, *drawn(batch), "forward")
    with given("1,024 requests of one token each"):
        require_bisection(path)


def drawn(batch: int) -> tuple[list[int], list[int]]:
    draw = random.Random(batch)
    lengths = [draw.choice([0, 0, 1, 2, 5]) for _ in range(batch)]
    return lengths, [draw.randrange(30) for _ in range(batch)]


def run(path: Path, lengths: list[int], keys: list[int], order: str, more: int = 0) -> None:
    """`more`: how many tokens beyond those that there are the launch is told of."""
    batch, n = len(lengths), sum(lengths)
    words = f"{lengths} new tokens, {keys} keys" if batch <= 8 else f"{batch} requests, {n} tokens"
    words += f", num_tokens = {n + more}" if more else ""
    ends = list(accumulate(lengths))
    expanded, cached = (poisoned(n + max(more, 2), dtype=ints([]).dtype) for _ in "ab")
    with given(f"{words}, topk {TOPK}, in {order} order"):
        launch(
            path, "fill_from_ends_i32", ints(ends), ints(keys), TOPK, expanded, cached, batch,
            n + more, explain=explanations(batch, n), order=order,
        )  # fmt: skip
        compare(lengths, keys, ends, expanded.tolist(), cached.tolist())


def compare(lengths, keys, ends, expanded: list[int], cached: list[int]) -> None:
    n, least = ends[-1], poisoned(1, dtype=ints([]).dtype).item()
    tail = [least] * (len(expanded) - n)
    seen = [kv - q + 1 + i for q, kv in zip(lengths, keys, strict=True) for i in range(q)]
    clamped = [max(v, 0) for v in seen]
    if expanded[n:] != tail or cached[n:] != tail:
        fail(
            f"{n} tokens are there, the last request ends at ends[batch - 1] = {n}, and something "
            "was written beyond. num_tokens may be larger than that."
        )
    # The search that stops at the first end at or beyond t, where ends may be equal.
    early = [bisect_left(ends, t) for t in range(n)]
    early = [keys[b] + 1 + t - ends[b] for t, b in enumerate(early)]
    because = "Token t of request b sees kv[b] + 1 + t - ends[b] keys: the request's last sees all."
    if least in expanded[:n]:
        because = f"{least} was there before: nobody wrote it. Each of num_tokens has a thread."
    equal(expanded, clamped + tail, "expanded", because=because, mistakes=[
        (seen + tail, "A request may have fewer keys than new tokens. What would be below 0 counts "
         "as 0."),
        ([max(v - 1, 0) for v in seen] + tail, "Each is too small by 1: a token sees itself, so "
         "the last token of a request sees all of its kv[b] keys."),
        ([max(v, 0) for v in early] + tail, "Some tokens were taken for those of the request "
         "before. Request b ends where ends[b] says, so token ends[b] is no more of it; and a "
         "request without tokens ends where the one before it does. Look for the first end that "
         "is greater than t."),
        ([max(kv, 0) for q, kv in zip(lengths, keys, strict=True) for _ in range(q)] + tail,
         "That is each request's number of keys. A request's earlier tokens see fewer."),
    ])  # fmt: skip
    equal(cached, [min(v, TOPK) for v in clamped] + tail, "cached", mistakes=[
        ([min(v, TOPK) for v in seen] + tail, "topk was applied to a number below 0: first "
         "max(…, 0), then min(…, topk)."),
        (clamped + tail, f"The sparse attention keeps topk = {TOPK} keys at most."),
        ([least] * len(cached), "Nobody wrote it."),
    ])  # fmt: skip


def require_bisection(path: Path) -> None:
    batch = 1024
    out = [poisoned(batch, dtype=ints([]).dtype) for _ in "ab"]
    ends, keys = ints(list(range(1, batch + 1))), ints([5] * batch)
    report = report_of(path, "fill_from_ends_i32", ends, keys, TOPK, *out, batch, batch)
    warps = batch // 32
    reads = sum(a.requests for a in report.accesses if a.name == "ends") / warps
    if reads > MOST_READS:
        fail(
            f"the results are right, but a warp reads `ends` {reads:,.0f} times to find its "
            "requests among 1,024. Halve what is left with each read: 10 of them are enough."
        )


def explanations(batch: int, n: int) -> Explain:
    def outside(found: Finding) -> str:
        if found.name in ("ends", "kv"):
            return (
                f"There are {batch} requests, the last one is batch - 1. Beyond the last request's "
                "end there is nothing to search for."
            )
        return "More threads run than there are tokens: those from num_tokens on have none."

    return {
        "out_of_bounds": outside,
        "race": ("Each token is written by one thread: t = blockIdx.x * blockDim.x + threadIdx.x."),
        "cudaErrorInvalidConfiguration": (
            f"A thread block has at most 1,024 threads, however many requests ({batch}) or tokens "
            f"({n}) there are: take thread blocks of a fixed size, and as many as the tokens need."
        ),
        "time_limit": (
            "Does every turn make the range from low to high smaller? With middle = "
            "(low + high) / 2 it stays as it is if low becomes middle, when high is low + 1."
        ),
    }


def draw_fill(path: Path) -> Any:
    """What each line costs."""
    from yaie.course.viz.costs import draw_costs

    lengths, keys = drawn(255)
    n = sum(lengths)
    out = [poisoned(n, dtype=ints([]).dtype) for _ in "ab"]
    inputs = (ints(list(accumulate(lengths))), ints(keys))
    report = report_of(path, "fill_from_ends_i32", *inputs, TOPK, *out, len(lengths), n)
    return draw_costs(report)
