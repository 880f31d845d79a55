"""24.4: what each thread waits for, how far ahead boxes are asked for, then products of rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb24.boxes import (
    STAGES,
    Event,
    event,
    matrix_of,
    see_product,
    told,
    told_really,
)

SIZES = ((64, 512), (3, 776))  # 8 boxes; 13, of which the last is narrow
ONCE = ((65, 64), (2, 256))  # 1 and 4
BOXES, ROWS = 13, 64
BECAUSE = "Each of the boxes 0, 1, … is added once, from the stage where it was copied."
EXPLAIN = {
    "race": "A stage is refilled when its phase of empty is complete, after all have read it.",
    "pending_copy": "Read a stage when its phase of full is complete, and release it after that.",
    "uninitialized": "A stage holds a box when its phase of full is complete.",
    "transaction_bytes": "`ask` expects the bytes of one box in each phase of full.",
    "mbarrier": "A phase takes as many arrivals as mbarrier_init said.",
    "deadlock": "A phase needs the arrivals that mbarrier_init counts; wait for the use's parity.",
}
ASK, ADD = "auto ask = [&](int box, int stage) {", "auto add = [&](int stage) {"
TELL_ASK = ' printf("told: ask %d %d %d 0 0\\n", (int)threadIdx.x, stage, box);'
TELL_ADD = ' printf("told: add %d %d 0 0 0\\n", (int)threadIdx.x, stage);'


def cases() -> Iterator[KernelCase]:
    yield KernelCase(f"what each thread does, for {BOXES} boxes", size=None, ahead=False)
    yield KernelCase(f"how far ahead boxes are asked for, of {BOXES}", size=None, ahead=True)
    yield from in_every_order(*(matrix_of(*size) for size in SIZES))
    for size in ONCE:
        yield matrix_of(*size)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size:
        see_product(see, path, case, EXPLAIN, BECAUSE)
    elif case.ahead:
        lines = told_really(path, {ASK: TELL_ASK, ADD: TELL_ADD}, ROWS, BOXES * 64)
        order = [words[0] for words in lines]
        ahead = order.index("add") if "add" in order else len(order)
        told_why = f"There are {STAGES} stages: as many boxes can come before one is added."
        see.equal("boxes asked for before the first is added", ahead, STAGES, told_why)
    else:
        edits = {ASK: TELL_ASK + " return;", ADD: TELL_ADD + " return;"}
        follow(see, told(path, "", edits, ROWS, BOXES * 64))


def follow(see: Observer, lines: Sequence[Sequence[str]]) -> None:
    """Note what the threads wait for, and where they arrive."""
    by_thread: dict[int, list[Event]] = {thread: [] for thread in range(ROWS + 32)}
    for words in lines:
        if words[0] in ("ask", "add"):
            done = Event(words[0], int(words[1]), "", int(words[2]), int(words[3]))
        else:
            done = event(list(words))
        by_thread[done.thread].append(done)
    made = [e for events in by_thread.values() for e in events if e.what == "init"]
    needed = {name: [0] * STAGES for name in ("full", "empty")}
    for one in made:
        needed[one.barrier][one.stage] = one.number
    see.equal(
        *("the list of arrivals that full[0], full[1], … need", needed["full"], [1] * STAGES),
        "`ask` makes the one arrival at full[stage].",
    )
    asking = [t for t, events in by_thread.items() if any(e.what == "ask" for e in events)]
    see.equal("the list of threads that ask", asking, [ROWS], "One thread asks for all boxes.")
    asked = [(e.number, e.stage) for e in by_thread[ROWS] if e.what == "ask"]
    want = [(box, box % STAGES) for box in range(BOXES)]
    see.equal("the list of boxes asked for, as (box, stage)", asked, want, "Box b: b % STAGES.")
    waited = [
        1 if parity is None and box < STAGES else parity  # the first use need not wait
        for box, parity in enumerate(waits(by_thread[ROWS], "ask", "empty"))
    ]
    see.equal(
        "the list of parities of empty[stage] that are waited for before each box is asked for",
        waited,
        [box // STAGES % 2 ^ 1 for box in range(BOXES)],
        "Box b is use u = b / STAGES of its stage. Before it is asked for, use u - 1 must have "
        "been read: phase u - 1. None: the thread does not wait.",
    )
    for thread in range(ROWS):
        events = by_thread[thread]
        added = [e.stage for e in events if e.what == "add"]
        wanted = [box % STAGES for box in range(BOXES)]
        see.equal(f"the list of stages that thread {thread} adds", added, wanted, BECAUSE)
        see.equal(
            f"the list of parities of full[stage] that thread {thread} waits for before it adds",
            waits(events, "add", "full"),
            [box // STAGES % 2 for box in range(BOXES)],
            "Use u is phase u of full[stage]. None is no wait: each thread that reads waits.",
        )
        early = released_early(events)
        told_why = "The stage may be overwritten as soon as all arrivals have come."
        see.equal(
            f"the list of stages that thread {thread} releases before it adds", early, [], told_why
        )
        others = sum(e.what == "arrive" and e.barrier == "full" for e in events)
        told_why = "Only `ask` arrives there."
        see.equal(f"the arrivals of thread {thread} at full[stage]", others, 0, told_why)
    came = [0] * STAGES
    for one in (e for events in by_thread.values() for e in events if e.what == "arrive"):
        came[one.stage] += one.barrier == "empty"
    uses = [len(range(stage, BOXES, STAGES)) for stage in range(STAGES)]
    see.equal(
        "the list of arrivals at empty[0], empty[1], …, as (needed per use, come in all uses)",
        [*zip(needed["empty"], came, strict=True)],
        [(count, count * use) for count, use in zip(needed["empty"], uses, strict=True)],
        "Each of the ROWS threads that add arrives once per use, and mbarrier_init says how many "
        f"arrivals a use needs. The stages are used {', '.join(map(str, uses))} times.",
    )
    see.true(
        *("empty[stage]", all(needed["empty"]), "is not made"),
        "mbarrier_init makes an mbarrier, of empty too.",
    )
    times = max(Counter((one.barrier, one.stage) for one in made).values(), default=0)
    see.equal(
        *("the number of times that an mbarrier is made", times, 1),
        "Another mbarrier_init begins at phase 0 again: thread 0 alone makes them, once.",
    )


def waits(events: Sequence[Event], before: str, barrier: str) -> list[int | None]:
    """For each call of `before`, the parity last waited for at its stage's mbarrier since then."""
    last: dict[int, int | None] = {}
    found: list[int | None] = []
    for one in events:
        if one.what == "wait" and one.barrier == barrier:
            last[one.stage] = one.number
        elif one.what == before:
            found.append(last.pop(one.stage, None))
    return found


def released_early(events: Sequence[Event]) -> list[int]:
    """The stages at whose `empty` a thread arrives with nothing added there since it did last."""
    added, early = set(), []
    for one in events:
        if one.what == "add":
            added.add(one.stage)
        elif one.what == "arrive" and one.barrier == "empty":
            if one.stage not in added:
                early.append(one.stage)
            added.discard(one.stage)
    return early
