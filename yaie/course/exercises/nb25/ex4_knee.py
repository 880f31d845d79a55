"""25.4: where the two limits of a server meet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer

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
    see.kind(call, got, (float, int), "a number")
    fewest, most = min(case.rates), max(case.rates.values())
    because = (
        f"The fewest clients, {fewest}, get {case.rates[fewest]:.4g} answers per second, and the "
        f"highest rate is {most:.4g}."
    )
    see.close(call, float(got), case.want, because)


def draw(knee: Any) -> Any:
    at = knee(SERVER)
    line = [(at * n / 20, SERVER[1] * at * n / 20) for n in range(2, 25)]
    waits = {"seconds per answer": [(n, n / rate) for n, rate in SERVER.items()]}
    mark = {f"knee: {at:.3g}": at}
    return viz.draw_charts(
        [
            viz.Chart(
                "A made-up server", "clients", "answers per second",
                {"measured": list(SERVER.items())},
                guides={"each as if alone": line, "the most": [(1, 5.0), (64, 5.0)]},
                marks=mark, log_x=True,
            ),
            viz.Chart("How long a client waits", "clients", "s", waits, marks=mark, log_x=True,
                  log_y=True),
        ]
    )  # fmt: skip
