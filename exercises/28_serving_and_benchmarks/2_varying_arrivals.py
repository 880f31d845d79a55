"""Exercise 28.2: Arrivals of a whole day.

Independent clients send more requests at noon than at night: their mean rate is a function of the
time. Draw the times at which requests arrive in `seconds` seconds, if rate(t) per second arrive
around time t. Only `rng` may decide; the same generator gives the same times.

You have
- `rate(time)`: returns a float from 0 to `peak`: requests per second at a time. It may jump, and
  asking it costs something: about `peak * seconds` questions are enough
- `peak`: the highest rate, a float that should be above 0
- `rng.expovariate(rate)`: returns a float, exponentially distributed with mean 1 / rate
- `rng.random()`: returns a float, uniform in [0, 1)

In a terminal: yaie check 28.2, yaie hint 28.2, yaie reset 28.2.
"""

from __future__ import annotations

import random
from collections.abc import Callable


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
    raise NotImplementedError("Exercise 28.2: Arrivals of a whole day")
