"""Exercise 28.4: The load at which a server keeps its promise.

Answers that come too late are of no use. From the traces of a run, compute its goodput: the
requests per second whose first token came within `ttft` seconds of when they were due, and whose
tokens then came `tpot` seconds apart or less on average. Then, from runs at several rates, find
the highest rate up to which at least a share of the requests, 0.9 say, met the limits. The
docstrings say what counts.

You have
- `traces`: a list of `Trace`: `trace.due` is a float, `trace.tokens` the list of the times of its
  tokens, ascending; empty if the answer was lost
- `ttft`, `tpot`: floats, in seconds
- `attained`: a dict from the rate at which requests were sent, a float, to the share of them that
  met the limits, in no order
- `share`: a float from 0 to 1
- `pairwise(rates)`: neighbors of a sequence, as pairs

In a terminal: yaie check 28.4, yaie hint 28.4, yaie reset 28.4.
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
    raise NotImplementedError("Exercise 28.4: The load at which a server keeps its promise")


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
    raise NotImplementedError("Exercise 28.4: The load at which a server keeps its promise")
