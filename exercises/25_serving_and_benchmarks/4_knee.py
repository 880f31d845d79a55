"""Exercise 25.4: Read the knee off a plot.

A server was measured with 1, 2, 4, … clients, each of which sends its next request as soon as the
last one is answered. From the answers per second, compute how many clients saturate the server:
the number at which the rising line of few clients meets the level line of many.

In a terminal: yaie check 25.4, yaie hint 25.4, yaie reset 25.4.
"""

from __future__ import annotations


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
    raise NotImplementedError("Exercise 25.4: Read the knee off a plot")
