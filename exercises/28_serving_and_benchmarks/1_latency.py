"""Exercise 28.1: What the clients of a run saw.

A trace has the time at which a request was due, and the times of its tokens. From the traces of a
run, compute time to first token, inter-token latency, time per output token and end-to-end
latency, the 50th and 99th percentile of each, and the tokens per second. Write `percentile`
first; `summarize` returns a `Latency`.

You have
- `trace.due`, `trace.tokens`: a float, when the request was due; a list of the times of its
  tokens, ascending, in seconds
- `Latency(requests=, tokens=, tokens_per_second=, ttft_p50=, ttft_p99=, itl_p50=, itl_p99=,
  tpot_p50=, tpot_p99=, e2e_p50=, e2e_p99=)`: what `summarize` returns; the first two are ints
- `math.ceil(x)`, `math.nan`: x rounded up; what stands where there is no gap

In a terminal: yaie check 28.1, yaie hint 28.1, yaie reset 28.1.
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
    raise NotImplementedError("Exercise 28.1: What the clients of a run saw")


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
    raise NotImplementedError("Exercise 28.1: What the clients of a run saw")
