"""The check of percentile and summarize, and the picture of a run."""

from __future__ import annotations

import math
import random
from typing import Any

from yaie.course.core.expect import close, equal, fail, given, raises

TRACES = {
    # due, tokens: a pause in the middle of the first, and the second is sent late
    "request a": (10.0, [10.5, 10.6, 10.7, 10.8, 12.0, 12.1]),
    "request b": (10.2, [11.2, 11.3, 11.4]),
    "request c": (11.0, [12.0]),
}


def run_of(entries: Any) -> list[Any]:
    from yaie.bench.load import Trace

    return [Trace(due, list(tokens)) for due, tokens in entries]


def check_latency(learner: Any) -> None:
    percentile_by_hand(learner.percentile)
    summary_by_hand(learner.summarize)
    refusals(learner)
    rng = random.Random(0)
    for number in range(60):
        at_random(learner, rng, number)


# ------------------------------------------------------------------------------------- percentile


def percentile_by_hand(percentile: Any) -> None:
    cases = [
        ([40.0, 10.0, 30.0, 20.0], 50, 20.0),
        ([40.0, 10.0, 30.0, 20.0], 51, 30.0),
        ([40.0, 10.0, 30.0, 20.0], 100, 40.0),
        ([40.0, 10.0, 30.0, 20.0], 1, 10.0),
        ([7.0], 99, 7.0),
        ([float(n) for n in range(100, 0, -1)], 99, 99.0),
        ([float(n) for n in range(1, 201)], 99, 198.0),
    ]
    for values, percent, want in cases:
        shown = f"{len(values)} values" if len(values) > 9 else str(values)
        what = f"percentile({shown}, {percent})"
        untouched = list(values)
        with given(what, errors={IndexError: "The place in the sorted list is one too high."}):
            got = percentile(values, percent)
        equal(values, untouched, f"{what}: the list itself", because="It belongs to the caller.")
        ordered = sorted(values)
        position = percent / 100 * (len(values) - 1)
        low = ordered[math.floor(position)]
        between = low + (position % 1) * (ordered[math.ceil(position)] - low)
        place = min(int(percent / 100 * len(values)), len(values) - 1)
        equal(
            got,
            want,
            what,
            because="It is the smallest value that at least so many percent do not exceed.",
            mistakes=[
                (values[math.ceil(percent * len(values) / 100) - 1], "Sort the values first."),
                (
                    ordered[place],
                    "That is one place too far: places count from 0, so the k-th value has "
                    "place k − 1.",
                ),
                (
                    between,
                    "That lies between two values, as numpy has it. Here a percentile is one of "
                    "them.",
                ),
                (
                    sorted(values, reverse=True)[math.ceil(percent * len(values) / 100) - 1],
                    "The values are sorted from large to small: the 99th percentile is a long "
                    "wait.",
                ),
            ],
        )


# ------------------------------------------------------------------------------------- summary


def summary_by_hand(summarize: Any) -> None:
    traces = run_of(TRACES.values())
    what = "summarize of three requests: " + "; ".join(
        f"due {due:g}, tokens {tokens}" for due, tokens in TRACES.values()
    )
    with given(what, errors={IndexError: "A request with one token has no gap."}):
        got = summarize(traces)
    _fields(got, what)
    equal(got.requests, 3, "requests")
    equal(got.tokens, 10, "tokens", because="6 + 3 + 1 came.")
    close(
        got.ttft_p50,
        1.0,
        "ttft_p50",
        because="The waits from due to the first token are 0.5, 1.0 and 1.0 seconds.",
        mistakes=[
            (1.2, "That is from the start of the run. Each request waits from its own `due`."),
            (0.5, "Sorted, 0.5, 1.0, 1.0: of three values the 50th percentile is the second."),
            (10 / 12, "That is the mean. One long wait hides in it."),
            (2.5 / 3, "That is the mean. One long wait hides in it."),
            (1.1, "That is to the second token. The first one is tokens[0]."),
        ],
    )
    close(
        got.ttft_p99,
        1.0,
        "ttft_p99",
        because="The longest of three waits.",
        mistakes=[(2.0, "Each request waits from its own `due`, not from the earliest.")],
    )
    close(
        got.itl_p99,
        1.2,
        "itl_p99",
        because="Request a paused for 1.2 s between two tokens; of seven gaps that is the last.",
        mistakes=[
            (
                (12.1 - 10.5) / 5,
                "That is the mean gap of a request. Its pause of 1.2 s is gone: take the gaps "
                "of all requests, one by one.",
            ),
            (
                (12.1 - 10.0) / 6,
                "That is a request's whole time over its tokens. Take the gaps, one by one.",
            ),
            (1.0, "The wait for the first token is no gap: it has its own percentile."),
        ],
    )
    close(
        got.itl_p50,
        0.1,
        "itl_p50",
        because="Of seven gaps, six are 0.1 s.",
        mistakes=[
            (0.5, "The wait for the first token is no gap: it has its own percentile."),
            (1.2 / 7 + 0.6 / 7, "That is the mean of the gaps."),
        ],
    )
    close(
        got.tokens_per_second,
        10 / 2.1,
        "tokens_per_second",
        because="10 tokens between 10.0, when the first request was due, and 12.1.",
        mistakes=[
            (
                10 / (2.1 + 1.2 + 1.0),
                "The times of the requests are added up, though they ran side by side.",
            ),
            (
                6 / 2.1 + 3 / 1.2 + 1 / 1.0,
                "The rates of the requests are added up. They did not all run all the time.",
            ),
            (10 / 1.6, "That is from the first token on. The run begins when a request is due."),
            (10 / 2.0, "That is to the last token of the last request. Request a ended later."),
            (3 / 2.1, "Those are requests a second."),
            (7 / 2.1, "Those are gaps a second. The first tokens are tokens, too."),
            (10 / 12.1, "That divides by a time of day. The run begins at the earliest `due`."),
        ],
    )


def _fields(got: Any, what: str) -> None:
    wanted = ("requests", "tokens", "tokens_per_second", "ttft_p50", "ttft_p99", "itl_p50")
    if not all(hasattr(got, name) for name in wanted):
        fail(f"{what}: it must return a `Latency`, got {type(got).__name__}.")


def refusals(learner: Any) -> None:
    raises(ValueError, lambda: learner.percentile([], 50), "percentile of no values")
    for percent in (0, -1, 101):
        raises(
            ValueError,
            lambda p=percent: learner.percentile([1.0, 2.0], p),
            f"percentile([1.0, 2.0], {percent})",
            because="It must be above 0 and at most 100.",
        )
    raises(ValueError, lambda: learner.summarize([]), "summarize of no traces")
    raises(
        ValueError,
        lambda: learner.summarize(run_of([(0.0, [1.0]), (0.5, [])])),
        "summarize of a run with a request that got no token",
        because="A lost answer must not vanish from the figures: the others would look better.",
    )
    what = "summarize of two requests with one token each"
    with given(what):
        alone = learner.summarize(run_of([(0.0, [1.0]), (0.5, [2.0])]))
    if not (math.isnan(alone.itl_p50) and math.isnan(alone.itl_p99)):
        waits = alone.itl_p99 == 1.5
        fail(
            f"{what}: there is no gap, so both percentiles are nan, got {alone.itl_p99}."
            + (
                " The wait for the first token is no gap: it has its own percentile."
                if waits
                else ""
            )
        )


# ------------------------------------------------------------------------------------- at random


def at_random(learner: Any, rng: random.Random, number: int) -> None:
    entries = []
    for _ in range(rng.randint(1, 30)):
        due = rng.uniform(0, 5) + 100 * (number % 2)
        now, tokens = due + rng.expovariate(2), []
        for _ in range(rng.randint(1, 12)):
            tokens.append(now)
            now += rng.expovariate(20)
        entries.append((due, tokens))
    traces = run_of(entries)
    what = f"summarize of a random run of {len(traces)} requests"
    with given(what):
        got = learner.summarize(traces)
    waits, gaps = [], []
    for due, tokens in entries:
        waits.append(tokens[0] - due)
        gaps += [tokens[i + 1] - tokens[i] for i in range(len(tokens) - 1)]
    start, end = min(due for due, _ in entries), max(tokens[-1] for _, tokens in entries)
    total = sum(len(tokens) for _, tokens in entries)
    close(got.tokens_per_second, total / (end - start), f"{what}: tokens_per_second")
    for name, values, percent in (
        ("ttft_p50", waits, 50),
        ("ttft_p99", waits, 99),
        ("itl_p50", gaps, 50),
        ("itl_p99", gaps, 99),
    ):
        if values:
            close(getattr(got, name), by_counting(values, percent), f"{what}: {name}")


def by_counting(values: list[float], percent: int) -> float:
    """The smallest value that enough others do not exceed, found by counting for each."""
    enough = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
    return min(enough)


def draw_latency(learner: Any) -> Any:
    from yaie.course.viz import draw_requests

    return draw_requests(dict(zip(TRACES, run_of(TRACES.values()), strict=True)))
