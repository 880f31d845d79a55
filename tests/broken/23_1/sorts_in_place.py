"""Sorts the caller's list."""

import math

from yaie.bench.load import Latency

EXPECT = "It belongs to the caller"


def percentile(values, percent):
    if not values:
        raise ValueError("values must hold at least one value")
    if not 0 < percent <= 100:
        raise ValueError("percent must be above 0 and at most 100")
    values.sort()
    return values[math.ceil(percent * len(values) / 100) - 1]


def summarize(traces):
    if not traces or any(not trace.tokens for trace in traces):
        raise ValueError("every trace must have a token")
    first = [trace.tokens[0] - trace.due for trace in traces]
    gaps = [b - a for t in traces for a, b in zip(t.tokens, t.tokens[1:], strict=False)]
    tokens = sum(len(trace.tokens) for trace in traces)
    seconds = max(t.tokens[-1] for t in traces) - min(t.due for t in traces)
    return Latency(
        requests=len(traces),
        tokens=tokens,
        tokens_per_second=tokens / seconds,
        ttft_p50=percentile(first, 50),
        ttft_p99=percentile(first, 99),
        itl_p50=percentile(gaps, 50) if gaps else math.nan,
        itl_p99=percentile(gaps, 99) if gaps else math.nan,
    )
