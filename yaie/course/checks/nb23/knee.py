"""The check of knee, and its picture."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import close, given, raises, true

SERVER = {1: 0.5, 2: 0.98, 4: 1.84, 8: 3.1, 16: 4.4, 32: 5.0, 64: 4.8}


def check_knee(knee: Any) -> None:
    what = f"knee({SERVER})"
    with given(what):
        got = knee(dict(SERVER))
    true(
        isinstance(got, float | int), f"{what}: it must return a number, got {type(got).__name__}."
    )
    close(
        float(got),
        10.0,
        what,
        because="Alone, a client gets 0.5 answers a second; the most are 5.0: so ten of them.",
        mistakes=[
            (9.6, "The level is the highest rate that was measured, not the last one."),
            (32.0, "That is where the rate is highest. The knee is where the two lines meet."),
            (64.0, "That is the largest number of clients that was tried."),
            (2.5, "That multiplies by the time of one request alone; the rate is 1 / time."),
            (5.0, "That is the highest rate. How many clients would get it, if each were alone?"),
            (8.0, "That is a number that was measured. The knee lies where the lines cross."),
        ],
    )
    server = {8: 24.0, 4: 16.0, 64: 24.0, 16: 32.0}
    what = f"knee({server})"
    with given(what, errors={KeyError: "The fewest clients need not be 1."}):
        got = knee(server)
    close(
        float(got),
        8.0,
        what,
        because="The fewest clients are 4, who get 16 a second: 4 each. The most are 32.",
        mistakes=[
            (2.0, "The fewest clients are 4: divide their rate by 4 first."),
            (32 / 3, "The fewest clients are 4. The order of the entries says nothing."),
            (6.0, "The level is the highest rate, not the last one."),
        ],
    )
    made_up_servers(knee)
    raises(ValueError, lambda: knee({}), "knee({})")


def made_up_servers(knee: Any) -> None:
    """Servers with the two limits and nothing else have their knee where they were given it."""
    rng = random.Random(0)
    for _ in range(50):
        alone, most = rng.uniform(0.1, 9.0), rng.uniform(10.0, 300.0)
        numbers = rng.sample(range(3, 4000), rng.randint(2, 9)) + rng.choices((1, 2))
        rates = {n: min(n * alone, most) for n in numbers}
        if max(rates.values()) < most or min(numbers) * alone > most:
            continue
        with given(f"knee({rates})"):
            got = knee(rates)
        close(float(got), most / alone, f"knee({rates})")


def draw_knee(knee: Any) -> Any:
    from yaie.course.viz import Chart, draw_charts

    at = knee(SERVER)
    line = [(at * n / 20, SERVER[1] * at * n / 20) for n in range(2, 25)]
    waits = {"seconds an answer": [(n, n / rate) for n, rate in SERVER.items()]}
    mark = {f"knee: {at:.3g}": at}
    return draw_charts(
        [
            Chart(
                "A made-up server", "clients", "answers a second",
                {"measured": list(SERVER.items())},
                guides={"each as if alone": line, "the most": [(1, 5.0), (64, 5.0)]},
                marks=mark, log_x=True,
            ),
            Chart("What a client waits", "clients", "s", waits, marks=mark, log_x=True, log_y=True),
        ]
    )  # fmt: skip
