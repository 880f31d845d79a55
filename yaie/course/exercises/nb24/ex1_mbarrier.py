"""24.1: calls in many orders, beside two sums that are kept of each phase."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons import asynchrony
from yaie.course.viz import style

# What is called in turn: ("arrive", bytes that are expected), ("complete", bytes that come).
TOLD = {
    "one arrival, no bytes": (1, [("arrive", 0), ("arrive", 0), ("arrive", 0)]),
    "the last of three arrivals": (3, [("arrive", 0)] * 4),
    "bytes that come after the arrival": (1, [("arrive", 64), ("complete", 48), ("complete", 16)]),
    "bytes that come before they are expected": (
        1,
        [("complete", 64), ("arrive", 64), ("arrive", 0)],
    ),
    "more bytes than are expected": (1, [("arrive", 32), ("complete", 64), ("arrive", 0)]),
    "two threads that expect bytes": (
        2,
        [("arrive", 32), ("arrive", 64), ("complete", 32), ("complete", 64)],
    ),
    "all bytes, and a thread that has not arrived": (
        2,
        [("arrive", 32), ("complete", 32), ("arrive", 0)],
    ),
    "four phases": (1, [("arrive", 16), ("complete", 16)] * 4),
    "an arrival too many": (1, [("arrive", 16), ("arrive", 16), ("complete", 16)]),
}
COUNTED = "A phase ends when it lacks no arrival and no byte; the next lacks all arrivals again."
PARITY = "The phase before the present one is complete, the present one is not."


def cases() -> Iterator[Case]:
    for name, (arrivals, calls) in TOLD.items():
        yield Case(name, arrivals=arrivals, calls=calls)
    generator = random.Random(0)
    for number in range(60):
        arrivals = generator.randint(1, 3)
        calls = [
            (generator.choice(("arrive", "complete")), 16 * generator.randint(0, 2))
            for _ in range(12)
        ]
        yield Case(f"random calls {number + 1}", arrivals=arrivals, calls=calls)


def observe(barrier_type: type, case: Case, see: Observer) -> None:
    barrier, phases = barrier_type(case.arrivals), [[0, 0, 0]]  # arrivals, expected, come
    done: list[str] = []
    for name, number in case.calls:
        call = f"{name}({number})"
        after = f"after {', '.join([*done, call])}"
        present = phases[-1]
        if name == "arrive" and present[0] == case.arrivals:
            state = barrier.pending, barrier.bytes, barrier.phase
            told = f"The phase needs {style.count(case.arrivals, 'arrival')}, and all have come."
            see.raises(
                f"{call} after {', '.join(done)}", ValueError, partial(barrier.arrive, number), told
            )
            now = barrier.pending, barrier.bytes, barrier.phase
            see.equal(f"(pending, bytes, phase) {after}", now, state, "It changes nothing.")
            continue
        with see.call(call):
            getattr(barrier, name)(number)
        present[0] += name == "arrive"
        present[1 if name == "arrive" else 2] += number
        if present[0] == case.arrivals and present[1] == present[2]:
            phases.append([0, 0, 0])
        done.append(call)
        arrived, expected, come = phases[-1]
        want = (case.arrivals - arrived, expected - come, len(phases) - 1)
        got = (barrier.pending, barrier.bytes, barrier.phase)
        see.equal(f"(pending, bytes, phase) {after}", got, want, COUNTED)
        for parity in (0, 1):
            with see.call(f"try_wait({parity})"):
                complete = barrier.try_wait(parity)
            wanted = parity != want[2] % 2
            see.equal(f"try_wait({parity}) in phase {want[2]}", bool(complete), wanted, PARITY)


def draw(barrier_type: type = asynchrony.Mbarrier) -> Any:
    """A ring of two stages, made of such barriers, while its second tile arrives."""
    from yaie.course.viz.ring import draw_ring

    ring = asynchrony.Ring(2, barrier_type)
    return draw_ring(ring.run(asynchrony.produce(ring, 2), asynchrony.consume(ring, 2))[4])
