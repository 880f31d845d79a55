"""Load, and what it meets: arrivals, the times of tokens, the two knees.

Nothing here knows an engine. A benchmark, in the engine's own process or at the other end of a
network, notes when each request was due and when each of its tokens came; the rest is arithmetic.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from yaie.engine.kv_cache import blocks_needed


@dataclass
class Trace:
    """One request, in seconds on one clock.

    Attributes:
        due: when it was to be sent. A client that was late in sending it made it wait, too.
        tokens: when each token of its answer came.
    """

    due: float
    tokens: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Latency:
    """What the clients of a run saw. Times are in seconds.

    Attributes:
        tokens_per_second: all tokens, over the time from the first request to the last token.
        ttft_p50, ttft_p99: time to first token, from when a request was due.
        itl_p50, itl_p99: inter-token latency, over the gaps of all requests; nan without any.
        tpot_p50, tpot_p99: time per output token, the mean gap of each request that has a gap; nan
            without any.
        e2e_p50, e2e_p99: end-to-end latency, from when a request was due to its last token.
    """

    requests: int
    tokens: int
    tokens_per_second: float
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    tpot_p50: float
    tpot_p99: float
    e2e_p50: float
    e2e_p99: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of a hundred of them do not exceed.

    It is one of the values ("nearest rank"); numpy's default lies between two of them.

    Raises:
        ValueError: there are no values, or `percent` is not above 0 and at most 100.
    """
    if not values:
        raise ValueError("values must hold at least one value, got none")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, got {percent}")
    # Whole numbers of percent give an exact product, so that ceil does not go one too far.
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]


def summarize(traces: Sequence[Trace]) -> Latency:
    """What the clients of a run saw, from their traces.

    - Time to first token: from `due` to the first token, one for each request.
    - Inter-token latency: from each token to the next of the same request. The gaps of all
      requests are taken together; a request with one token has none, and without any gap both
      percentiles are nan.
    - Time per output token: the mean gap of each request that has one, from its first token to its
      last; nan without any gap.
    - End-to-end latency: from `due` to the last token, one for each request.
    - Tokens per second: all tokens, divided by the time from the earliest `due` to the last token
      of all.

    Percentiles are those of `percentile`.

    Raises:
        ValueError: there are no traces, or one has no token. A run that lost an answer has no
            latency.
    """
    if not traces:
        raise ValueError("traces must hold at least one trace, got none")
    for number, trace in enumerate(traces):
        if not trace.tokens:
            raise ValueError(f"traces[{number}] must have at least one token, got none")
    first = [trace.tokens[0] - trace.due for trace in traces]
    gaps = [b - a for trace in traces for a, b in zip(trace.tokens, trace.tokens[1:], strict=False)]
    several = [trace.tokens for trace in traces if len(trace.tokens) > 1]
    means = [(tokens[-1] - tokens[0]) / (len(tokens) - 1) for tokens in several]
    whole = [trace.tokens[-1] - trace.due for trace in traces]
    tokens = sum(len(trace.tokens) for trace in traces)
    seconds = max(trace.tokens[-1] for trace in traces) - min(trace.due for trace in traces)
    return Latency(
        requests=len(traces),
        tokens=tokens,
        tokens_per_second=tokens / seconds,
        ttft_p50=percentile(first, 50),
        ttft_p99=percentile(first, 99),
        itl_p50=percentile(gaps, 50) if gaps else math.nan,
        itl_p99=percentile(gaps, 99) if gaps else math.nan,
        tpot_p50=percentile(means, 50) if means else math.nan,
        tpot_p99=percentile(means, 99) if means else math.nan,
        e2e_p50=percentile(whole, 50),
        e2e_p99=percentile(whole, 99),
    )


def poisson_arrivals(rate: float, count: int, rng: random.Random) -> list[float]:
    """The times at which the requests of many independent clients arrive: a Poisson process.

    Args:
        rate: mean number of requests per second.
        count: how many arrive.
        rng: what to draw with.

    Returns:
        `count` ascending times in seconds after the start. From the start to the first, and from
        each to the next, is a time of its own, drawn from the exponential distribution whose mean
        is 1 / rate.

    Raises:
        ValueError: `rate` is not above 0, or `count` is below 0.
    """
    if not rate > 0:
        raise ValueError(f"rate must be above 0, got {rate}")
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    times, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times


def requests_that_fit(
    num_blocks: int, block_size: int, prompt: int, output: int, shared: int = 0
) -> int:
    """How many requests can run to their ends together; with one more, some wait or are preempted.

    Each has `prompt` tokens and generates `output` more. Of the last one no key and value are
    ever stored: it ends the answer before the model sees it. The first `shared` tokens of all
    prompts are the same and in the prefix cache; of them, whole blocks are stored once for all
    requests, and never the block of a prompt's last token, which each request computes itself.

    Args:
        num_blocks, block_size: the pool; `block_size` in tokens.
        prompt, output: tokens of each request, at least 1.
        shared: at most `prompt`.

    Returns:
        How many requests; 0 if the pool is too small for one, or for the shared tokens.
    """
    common = min(shared, prompt - 1) // block_size
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, (num_blocks - common) // own)


def knee(rates: dict[int, float]) -> float:
    """The number of concurrent requests at which the two limits of a server meet.

    With few requests, each takes as long as if it were alone: n of them are finished n times as
    fast. With many, no more are finished per second than the server can do. The first is a line
    through the origin and the point of the fewest requests, the second a level line through the
    highest rate; the knee is where they cross.

    Args:
        rates: by the number of requests that are always under way, how many finish per second.

    Returns:
        A number of requests, which need not be whole.

    Raises:
        ValueError: there is no rate.
    """
    if not rates:
        raise ValueError("rates must hold at least one rate, got none")
    fewest = min(rates)
    return max(rates.values()) * fewest / rates[fewest]


def in_system(traces: Sequence[Trace]) -> float:
    """The mean number of requests under way between the first request and the last token."""
    waits = sum(trace.tokens[-1] - trace.due for trace in traces)
    end = max(trace.tokens[-1] for trace in traces)
    return waits / (end - min(trace.due for trace in traces))


def under_way(traces: Sequence[Trace]) -> list[tuple[float, int]]:
    """(time since the first request, requests under way from then on), at each change."""
    start = min(trace.due for trace in traces)
    changes = sorted(
        [(t.due - start, 1) for t in traces] + [(t.tokens[-1] - start, -1) for t in traces]
    )
    series, number = [], 0
    for time, change in changes:
        number += change
        series.append((time, number))
    return series


def figures(traces: Sequence[Trace], tokens: int) -> dict[str, float]:
    """What `summarize` returns, as a row, where the traces are of pieces of text: a piece may hold
    several of the `tokens`, of which the rate is."""
    latency = summarize(traces)
    rate = latency.tokens_per_second * tokens / latency.tokens
    counted = {"tokens": tokens, "tokens_per_second": rate, "pieces": latency.tokens}
    return asdict(latency) | counted
