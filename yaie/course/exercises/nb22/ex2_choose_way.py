"""22.2: the way to build that fits a situation, with the shortest total wait."""

import random
from collections.abc import Callable, Iterator

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.data_nb22 import measured_ways
from yaie.course.lessons.ways import Situation, Way

H200, T4, B200 = (9, 0), (7, 5), (10, 0)
CARDS = (T4, (8, 0), H200, B200)
SITUATIONS = {
    "you write a kernel, and try it after each of 100 edits": Situation(edits=100, starts=1),
    "you write device code alone": Situation(needs_launcher=False, edits=100, starts=1),
    "a package for machines without nvcc": Situation(has_nvcc=False, starts=1000),
    "a server that starts often, on a machine with nvcc": Situation(starts=1000),
    "users with a T4, an H200 and a B200": Situation(cards=frozenset({T4, H200, B200}), starts=9),
    "a V100, and no nvcc on that machine": Situation(
        has_nvcc=False, cards=frozenset({(7, 0)}), starts=1
    ),
    "a V100 without nvcc, for device code alone": Situation(
        has_nvcc=False, needs_launcher=False, cards=frozenset({(7, 0)}), starts=1
    ),
    "a C++ server without Python": Situation(needs_operator=True, starts=1),
    "a C++ server on a V100": Situation(needs_operator=True, cards=frozenset({(7, 0)}), starts=1),
    "no edits and no starts: every wait is 0": Situation(),
}


# The waits alone decide between these.
BY_WAITS = [
    Way("starts soon", 5, 1, False, True, True, None),
    Way("is built soon", 1, 9, False, True, True, None),
    Way("neither", 9, 20, False, True, True, None),
]

NO_CARDS = [  # the first builds for no card; None means the card that is there
    Way("for no card", 1, 1, False, True, True, frozenset()),
    Way("for the card that is there", 9, 9, False, True, True, None),
]


def cases() -> Iterator[Case]:
    yield Case("three starts and no edits", ways=BY_WAITS, situation=Situation(starts=3))
    yield Case("a way whose set of cards is empty", ways=NO_CARDS, situation=Situation(starts=3))
    for name, situation in SITUATIONS.items():
        yield Case(name, ways=measured_ways(), situation=situation)
    generator = random.Random(0)
    for number in range(300):
        yield Case(f"random situation {number + 1}", **draw_one(generator))


def draw_one(generator: random.Random) -> dict:
    def flip() -> bool:
        return generator.random() < 0.5

    def some(least: int) -> frozenset[tuple[int, int]]:
        return frozenset(generator.sample(CARDS, generator.randint(least, 3)))

    ways = [
        Way(
            name, generator.randint(1, 9), generator.randint(0, 9), flip(), flip(), flip(),
            some(1) if flip() else None,
        )
        for name in "abcdef"
    ]  # fmt: skip
    edits, starts = generator.choice(((3, 0), (0, 3), (1, 1), (2, 5)))
    return {"ways": ways, "situation": Situation(flip(), some(1), flip(), flip(), edits, starts)}


def observe(choose_way: Callable[..., str | None], case: Case, see: Observer) -> None:
    with see.call("choose_way(ways, situation)"):
        got = choose_way(case.ways, case.situation)
    want, because = expected(case.ways, case.situation)
    see.equal("the way", got, want, because)


def expected(ways: list[Way], situation: Situation) -> tuple[str | None, str]:
    """The same rules, way by way; and why."""
    best: tuple[float, str] | None = None
    out = []
    for way in ways:
        reason = ruled_out(way, situation)
        if reason:
            out.append(f"{way.name} {reason}")
            continue
        wait = situation.edits * way.seconds + situation.starts * way.first_call
        if best is None or wait < best[0]:
            best = wait, way.name
    left = "; ".join(out) or "No way is ruled out"
    if best is None:
        return None, f"{left}."
    return best[1], f"{left}. Of the rest {best[1]} has the shortest wait, {best[0]:.3g} s."


def ruled_out(way: Way, situation: Situation) -> str:
    if way.needs_nvcc and not situation.has_nvcc:
        return "needs nvcc"
    if situation.needs_launcher and not way.launcher:
        return "builds no launcher"
    if situation.needs_operator and not way.operator:
        return "registers no operator"
    if way.cards is not None and any(card not in way.cards for card in situation.cards):
        return "does not run on all cards"
    return ""
