"""Solution of exercise 28.4: The load at which a server keeps its promise.

Answers that come too late are of no use. From the traces of a run, compute its goodput: the
requests per second whose first token came within `ttft` seconds of when they were due, and whose
tokens then came `tpot` seconds apart or less on average. Then, from runs at several rates, find
the highest rate up to which at least a share of the requests, 0.9 say, met the limits. The
docstrings say what counts.

Generated from goodput, sustained_rate in yaie/course/lessons/load.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from yaie.bench.load import Trace


def goodput(traces: Sequence[Trace], ttft: float, tpot: float) -> float:
    """Requests per second whose answers met both limits, in seconds.

    A request met them if its first token came at most `ttft` after the request was due, and if the
    mean of the times from each of its tokens to the next is at most `tpot`; an answer of one token
    has no such times. A request without a token was lost: it met nothing. (Zhong et al.,
    "DistServe", 2024, compare servers by their goodput.)

    Returns:
        The number of requests that met the limits, divided by the time from the earliest `due` to
        the last token of all; 0.0 without any token.
    """
    answered = [trace for trace in traces if trace.tokens]
    if not answered:
        return 0.0
    met = 0
    for trace in answered:
        gaps = max(1, len(trace.tokens) - 1)
        mean = (trace.tokens[-1] - trace.tokens[0]) / gaps
        met += trace.tokens[0] - trace.due <= ttft and mean <= tpot
    end = max(trace.tokens[-1] for trace in answered)
    return met / (end - min(trace.due for trace in traces))


def sustained_rate(attained: Mapping[float, float], share: float = 0.9) -> float:
    """The highest rate up to which a server keeps its promise to a share of the requests.

    Between two measured rates the share is taken to change linearly.

    Args:
        attained: by the rate at which requests were sent, the share of them that met the limits.
        share: from 0 to 1, what was promised.

    Returns:
        The rate at which the share first falls below `share`, going up from the lowest; the
        highest measured rate if it never does, and 0.0 if the lowest rate is too much already.

    Raises:
        ValueError: there is no rate.
    """
    if not attained:
        raise ValueError("attained must hold at least one rate, got none")
    rates = sorted(attained)
    if attained[rates[0]] < share:
        return 0.0
    for below, above in pairwise(rates):
        if attained[above] < share:
            part = (attained[below] - share) / (attained[below] - attained[above])
            return below + part * (above - below)
    return rates[-1]
