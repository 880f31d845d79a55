"""Solution of exercise 28.1: What the clients of a run saw.

A trace has the time at which a request was due, and the times of its tokens. From the traces of a
run, compute time to first token, inter-token latency, time per output token and end-to-end
latency, the 50th and 99th percentile of each, and the tokens per second. Write `percentile`
first; `summarize` returns a `Latency`.

Generated from percentile, summarize in yaie/bench/load.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from yaie.bench.load import Latency, Trace


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
