"""28.4: requests per second that met their limits, and the load up to which a server meets them."""

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

from yaie.bench.load import Trace
from yaie.course import viz
from yaie.course.core.observe import Case, Observer

# due, tokens; the limits are 1.0 and 0.5 s, and each is met exactly by one of them
TRACES = (
    (10.0, [10.5, 11.0, 11.25]),  # met
    (10.0, [11.0, 11.5, 12.0]),  # met, both exactly
    (10.5, [11.75, 12.0]),  # first token late
    (11.0, [11.5, 12.25]),  # tokens too far apart
    (12.0, [12.5]),  # one token: no time between tokens
)
CURVE = {4.0: 0.97, 1.0: 1.0, 16.0: 0.2, 2.0: 0.99, 8.0: 0.6}


def cases() -> Iterator[Case]:
    yield Case("a run of 5 requests", traces=TRACES, limits=(1.0, 0.5))
    yield Case("a run with a lost answer", traces=(*TRACES, (9.0, [])), limits=(1.0, 0.5))
    yield Case("pauses that the mean hides", traces=((0.0, [0.5, 0.5, 0.5, 1.75]),),
               limits=(1.0, 0.5))  # fmt: skip
    yield Case("a run in which all answers were lost", traces=((3.0, []),), limits=(1.0, 0.5))
    yield Case("no request", traces=(), limits=(1.0, 0.5))
    yield Case("shares that fall", attained=CURVE, share=0.9)
    yield Case("shares that fall and rise again", attained={1.0: 1.0, 2.0: 0.5, 4.0: 0.95},
               share=0.9)  # fmt: skip
    yield Case("a promise that is never broken", attained={3.0: 0.95, 1.0: 0.9}, share=0.9)
    yield Case("a promise that the lowest rate breaks", attained={2.0: 0.8, 4.0: 0.95}, share=0.9)
    yield Case("a share that is reached exactly", attained={1.0: 1.0, 2.0: 0.5, 3.0: 0.25},
               share=0.5)  # fmt: skip
    yield Case("a share that is reached exactly, and then exceeded",
               attained={1.0: 1.0, 2.0: 0.5, 3.0: 0.75}, share=0.5)  # fmt: skip
    yield Case("no rate", attained={}, share=0.9)
    yield Case("the usual share", attained=CURVE, share=None)
    rng = random.Random(0)
    for number in range(60):
        yield Case(f"random run {number + 1}", traces=drawn(rng), limits=(0.75, 0.25))
    for _ in range(60):
        rates = rng.sample(range(1, 200), rng.randint(1, 8))
        shares = sorted((rng.randrange(1001) / 1000 for _ in rates), reverse=True)
        attained = dict(zip(map(float, sorted(rates)), shares, strict=True))
        mixed = dict(rng.sample(sorted(attained.items()), len(attained)))
        yield Case(f"the shares {mixed}", attained=mixed, share=rng.choice((0.3, 0.5, 0.9, 0.95)))


def drawn(rng: random.Random) -> tuple[tuple[float, list[float]], ...]:
    """Times in eighths of a second, which are exact."""
    traces = []
    for _ in range(rng.randint(1, 9)):
        due = rng.randrange(80) / 8
        gaps = [rng.randrange(1, 10) / 8, *(rng.randrange(5) / 8 for _ in range(rng.randrange(5)))]
        tokens = [due + sum(gaps[: n + 1]) for n in range(len(gaps))]
        traces.append((due, tokens if rng.random() < 0.85 else []))
    return tuple(traces)


def observe(functions: Any, case: Case, see: Observer) -> None:
    if hasattr(case, "traces"):
        observe_goodput(functions.goodput, case, see)
    else:
        observe_rate(functions.sustained_rate, case, see)


def observe_goodput(goodput: Any, case: Case, see: Observer) -> None:
    ttft, tpot = case.limits
    traces = [Trace(due, list(tokens)) for due, tokens in case.traces]
    with see.call(f"goodput(traces, ttft={ttft}, tpot={tpot})"):
        got = goodput(traces, ttft, tpot)
    words, met = [], 0
    for due, tokens in case.traces:
        late = bool(tokens) and tokens[0] - due > ttft
        slow = len(tokens) > 1 and sum(b - a for a, b in pairwise(tokens)) > tpot * (
            len(tokens) - 1
        )
        met += bool(tokens) and not late and not slow
        words.append("lost" if not tokens else "late" if late else "slow" if slow else "met")
    ends = [tokens[-1] for _, tokens in case.traces if tokens]
    want = 0.0
    because = "Without a token there is no goodput."
    if ends:
        seconds = max(ends) - min(due for due, _ in case.traces)
        want = met / seconds
        because = f"The requests were {', '.join(words)}: {met} in {seconds:g} s."
    see.kind("goodput", got, (float, int), "a number")
    see.close("goodput", float(got), want, because)
    after = [(trace.due, trace.tokens) for trace in traces]
    see.equal("traces after the call", after, [*case.traces], "Leave the arguments as they are.")


def observe_rate(sustained_rate: Any, case: Case, see: Observer) -> None:
    attained = dict(case.attained)
    arguments = [attained] if case.share is None else [attained, case.share]
    if not attained:
        see.raises("sustained_rate({})", ValueError, lambda: sustained_rate({}))
        return
    with see.call(f"sustained_rate({', '.join(map(str, arguments))})"):
        got = sustained_rate(*arguments)
    see.kind("sustained_rate", got, (float, int), "a number")
    want, because = crossing(case.attained, case.share or 0.9)
    see.close("sustained_rate", float(got), want, because)
    see.equal("attained after the call", list(attained), list(case.attained),
              "Leave the arguments as they are.")  # fmt: skip


def crossing(attained: dict[float, float], share: float) -> tuple[float, str]:
    """Where a line through the points first reaches the share, in fractions."""
    points = [(Fraction(rate), Fraction(attained[rate])) for rate in sorted(attained)]
    wanted = Fraction(share)
    broken = [number for number, (_, got) in enumerate(points) if got < wanted]
    if not broken:
        return float(points[-1][0]), "No rate breaks the promise: it is the highest measured."
    if not broken[0]:
        return 0.0, "The lowest rate breaks the promise already."
    (x0, y0), (x1, y1) = points[broken[0] - 1 : broken[0] + 1]
    want = x0 + (x1 - x0) * (y0 - wanted) / (y0 - y1)
    because = (
        f"At {float(x0):g} the share is {float(y0):g}, at {float(x1):g} it is {float(y1):g}; the "
        f"line between them reaches {share:g} at {float(want):.4g}."
    )
    return float(want), because


def draw(functions: Any) -> Any:
    """A made-up server of 10 answers per second, its throughput and its goodput."""
    good, done, attained = {}, {}, {}
    for rate in (2, 4, 6, 7, 8, 9, 10, 12, 14):
        traces = served(rate)
        good[rate] = functions.goodput(traces, 1.0, 1.0)
        done[rate] = functions.goodput(traces, 1e9, 1e9)
        attained[float(rate)] = good[rate] / done[rate]
    at = functions.sustained_rate(attained, 0.9)
    mark = {f"{at:.3g}": at}  # short, so that it lies on no curve
    lines = {"answers": list(done.items()), "answers in time": list(good.items())}
    return viz.draw_charts(
        [
            viz.Chart("Answers per second", "sent per second", "", lines,
                      marks=mark),
            viz.Chart("Share that is in time: 90% up to the line", "sent per second", "",
                      {"in time": [(rate, part) for rate, part in attained.items()]}, marks=mark),
        ]
    )  # fmt: skip


def served(rate: float, count: int = 2000) -> list[Trace]:
    """Requests at random times, answered one after the other in 0.1 s each."""
    rng, now, free, traces = random.Random(3), 0.0, 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        free = max(now, free) + 0.1
        traces.append(Trace(now, [free]))
    return traces
