"""23.4: where the two limits of a server meet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb23 import NOTEBOOK

EXERCISE = Exercise(
    id="23.4",
    notebook=NOTEBOOK,
    slug="knee",
    title="Read the knee off a plot",
    target="yaie.bench.load:knee",
    task=(
        "A server was measured with 1, 2, 4, … clients, each of which sends its next request as "
        "soon as the last one is answered. From the answers per second, compute for how many "
        "clients the server is made: where the rising line of few clients meets the level line of "
        "many."
    ),
    difficulty=1,
    minutes=8,
    hints=(
        "Two lines bound the curve. A few clients do not disturb each other, and twice as many get "
        "twice as many answers. With many clients the server is at its limit.",
        "The rising line goes through the origin and through the point of the fewest clients, "
        "which need not be 1. The level line goes through the highest rate, wherever that is: "
        "measured curves fall again.",
        "The rising line is `rates[fewest] / fewest` times the number of clients. Set it equal to "
        "`max(rates.values())`, and solve for the number.",
    ),
    proves="It is where the two lines cross, for curves of 50 made-up servers.",
)
SERVER = {1: 0.5, 2: 0.98, 4: 1.84, 8: 3.1, 16: 4.4, 32: 5.0, 64: 4.8}
FALLING = {8: 24.0, 4: 16.0, 64: 24.0, 16: 32.0}


def cases() -> Iterator[Case]:
    yield Case("", rates=SERVER, want=10.0)
    yield Case("", rates=FALLING, want=8.0)
    yield Case("", rates={}, want=None)
    rng = random.Random(0)
    for _ in range(50):  # servers with the two limits and nothing else
        alone, most = rng.uniform(0.1, 9.0), rng.uniform(10.0, 300.0)
        numbers = rng.sample(range(3, 4000), rng.randint(2, 9)) + rng.choices((1, 2))
        rates = {n: min(n * alone, most) for n in numbers}
        if max(rates.values()) == most and min(numbers) * alone <= most:
            yield Case("", rates=rates, want=most / alone)


def observe(knee: Any, case: Case, see: Observer) -> None:
    call = f"knee({case.rates})"
    if case.want is None:
        see.raises(call, ValueError, lambda: knee({}), "There is no rate.")
        return
    with see.call(call):
        got = knee(dict(case.rates))
    number = isinstance(got, float | int)
    if not see.true(call, number, f"must return a number, got {type(got).__name__}"):
        see.stop()
    fewest, most = min(case.rates), max(case.rates.values())
    because = (
        f"The fewest clients, {fewest}, get {case.rates[fewest]:.4g} answers per second, and the "
        f"highest rate is {most:.4g}."
    )
    see.close(call, float(got), case.want, because)


def draw(knee: Any) -> Any:
    from yaie.course.viz import Chart, draw_charts

    at = knee(SERVER)
    line = [(at * n / 20, SERVER[1] * at * n / 20) for n in range(2, 25)]
    waits = {"seconds per answer": [(n, n / rate) for n, rate in SERVER.items()]}
    mark = {f"knee: {at:.3g}": at}
    return draw_charts(
        [
            Chart(
                "A made-up server", "clients", "answers per second",
                {"measured": list(SERVER.items())},
                guides={"each as if alone": line, "the most": [(1, 5.0), (64, 5.0)]},
                marks=mark, log_x=True,
            ),
            Chart("How long a client waits", "clients", "s", waits, marks=mark, log_x=True,
                  log_y=True),
        ]
    )  # fmt: skip
