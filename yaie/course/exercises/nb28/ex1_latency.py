"""28.1: percentiles, and what the clients of a run saw."""

import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from yaie.bench.load import Latency, Trace
from yaie.course import viz
from yaie.course.core.compare import short
from yaie.course.core.observe import Case, Observer

# due, tokens: the first pauses in the middle, and outlives the others
TRACES = (
    (10.0, [10.5, 10.6, 10.7, 10.8, 12.0, 12.1]),
    (10.2, [11.2, 11.3, 11.4]),
    (11.0, [12.0]),
)
FOUR = [40.0, 10.0, 30.0, 20.0]


def cases() -> Iterator[Case]:
    descending = [float(n) for n in range(100, 0, -1)]
    for values, percent in (
        *((FOUR, percent) for percent in (50, 51, 100, 1)),
        ([7.0], 99),
        *((descending, percent) for percent in (99, 7, 14, 28, 55)),
        ([float(n) for n in range(1, 201)], 99),
        (FOUR, 37.5),
    ):
        yield Case("", values=values, percent=percent, trace=None)
    yield Case("a run of three requests", trace=list(TRACES))
    yield Case("a run whose requests have one token each", trace=[(0.0, [1.0]), (0.5, [2.0])])
    yield Case("what is refused", trace=None, values=None)
    rng = random.Random(0)
    for number in range(60):
        start = 100 * (number % 2)
        yield Case(in_words, trace=random_run(rng, start, rng.randint(1, 30)))
    yield Case(in_words, trace=random_run(rng, 0, 200))  # whose 98th percentile is another


def in_words(case: Case) -> str:
    if len(case.trace) > 3:
        return f"a random run of {len(case.trace)} requests"
    told = [
        f"due {due:.3g}, tokens at {[round(t, 3) for t in tokens]}" for due, tokens in case.trace
    ]
    return f"a run of requests {'; '.join(told)}"


def random_run(rng: random.Random, start: float, requests: int) -> list[tuple[float, list[float]]]:
    run = []
    for _ in range(requests):
        due = rng.uniform(0, 5) + start
        now, tokens = due + rng.expovariate(2), []
        for _ in range(rng.randint(1, 12)):
            tokens.append(now)
            now += rng.expovariate(20)
        run.append((due, tokens))
    return run


def observe(learner: Any, case: Case, see: Observer) -> None:
    if case.trace:
        observe_summary(learner.summarize, case.trace, see)
    elif case.trace is None and case.values:
        observe_percentile(learner.percentile, case.values, case.percent, see)
    else:
        observe_refusals(learner, see)


def observe_percentile(percentile: Any, values: list[float], percent: float, see: Observer) -> None:
    call = f"percentile({short(values)}, {percent})"
    given = list(values)
    with see.call(call):
        got = percentile(given, percent)
    want = by_counting(values, percent)
    reach = sum(value <= want for value in values)
    because = (
        f"{reach} of the {len(values)} values do not exceed {want:g}, which is at least "
        f"{percent}%, and no smaller value has as many."
    )
    see.equal(call, got, want, because)
    see.equal(f"the list after {call}", given, values, "It belongs to the caller.")


def by_counting(values: list[float], percent: float) -> float:
    """The smallest value that enough others do not exceed, found by counting for each."""
    enough = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
    return min(enough)


def observe_summary(summarize: Any, run: list[tuple[float, list[float]]], see: Observer) -> None:
    with see.call("summarize(traces)"):
        got = summarize(traces_of(run))
    see.kind("summarize", got, Latency)
    total = sum(len(tokens) for _, tokens in run)
    see.equal("requests", got.requests, len(run))
    see.equal("tokens", got.tokens, total, "All tokens of all requests count.")
    start, end = min(due for due, _ in run), max(tokens[-1] for _, tokens in run)
    waits = [tokens[0] - due for due, tokens in run]
    gaps = [b - a for _, tokens in run for a, b in pairwise(tokens)]
    means = [(tokens[-1] - tokens[0]) / (len(tokens) - 1) for _, tokens in run if tokens[1:]]
    whole = [tokens[-1] - due for due, tokens in run]
    wait = "Each request waits from its own `due` to its first token."
    pause = f"The run has {len(gaps)} gaps: from each token to the next of the same request."
    mean = "Each request with a gap counts once, with the mean of its gaps."
    end_to_end = "Each request lasts from its own `due` to its last token."
    for name, values, because in (
        ("ttft", waits, wait), ("itl", gaps, pause), ("tpot", means, mean),
        ("e2e", whole, end_to_end),
    ):  # fmt: skip
        for percent in (50, 99):
            field = f"{name}_p{percent}"
            want = by_counting(values, percent) if values else math.nan
            see.close(field, getattr(got, field), want, because if values else "There is no gap.")
    because = f"{total} tokens came between {start:.4g}, the earliest `due`, and {end:.4g}."
    see.close("tokens_per_second", got.tokens_per_second, total / (end - start), because)


def traces_of(run: Any) -> list[Any]:
    return [Trace(due, list(tokens)) for due, tokens in run]


def observe_refusals(learner: Any, see: Observer) -> None:
    percentile, summarize = learner.percentile, learner.summarize
    see.raises("percentile([], 50)", ValueError, partial(percentile, [], 50))
    for percent in (0, -1, 101):
        call, why = f"percentile([1.0, 2.0], {percent})", "percent must be above 0, at most 100."
        see.raises(call, ValueError, partial(percentile, [1.0, 2.0], percent), why)
    see.raises("summarize([])", ValueError, partial(summarize, []))
    call, lost = "summarize of a run in which one request got no token", [(0.0, [1.0]), (0.5, [])]
    why = "Without the lost request the figures would look better than the run was."
    see.raises(call, ValueError, partial(summarize, traces_of(lost)), why)


def draw(learner: Any) -> Any:
    names = ("request a", "request b", "request c")
    return viz.draw_requests(dict(zip(names, traces_of(TRACES), strict=True)))
