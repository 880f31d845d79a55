"""Load that changes, and limits that answers have to meet: what notebook 28 adds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from yaie.bench.load import Trace


def varying_arrivals(
    rate: Callable[[float], float], peak: float, seconds: float, rng: random.Random
) -> list[float]:
    """The times at which independent clients send requests while their mean rate changes.

    They are a Poisson process whose rate is rate(time) at each time.

    Args:
        rate: requests per second at a time, from 0 to `peak`. It may jump, and asking it costs
            something: about `peak * seconds` questions are enough.
        peak: the highest rate, above 0.
        seconds: how long requests are sent.
        rng: what to draw with.

    Returns:
        Ascending times from 0 to `seconds`; there may be none.

    Raises:
        ValueError: `peak` is not above 0, or a rate that is asked for is below 0 or above `peak`.
    """
    if not peak > 0:
        raise ValueError(f"peak must be above 0, got {peak}")
    # Thinning (Lewis and Shedler, 1979): a process of rate `peak` proposes times, and each is kept
    # with probability rate(time) / peak.
    times, now = [], 0.0
    while (now := now + rng.expovariate(peak)) < seconds:
        at = rate(now)
        if not 0 <= at <= peak:
            raise ValueError(f"rate({now}) must be from 0 to peak, which is {peak}, got {at}")
        if rng.random() * peak < at:
            times.append(now)
    return times


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
