"""26.2: who starts products when, then attention with every access checked."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb18.attention import Problem, see_attention
from yaie.course.lessons.data_nb26 import Event, cycles, events, replay
from yaie.emulator import KernelError

NAME = "flash_pingpong"
TILES = 3  # of keys, where consumers are followed

BECAUSE = "Turns decide when products are started. The numbers are right with and without them."
TURNS = (
    "Consumer 0 has the first turn, and after the last consumer it is its turn again. In its turn "
    "a consumer starts the product for the scores of a tile and the one for the output."
)
EXPLAIN = {
    "deadlock": "A turn that is waited for must be given: by the last consumer to consumer 0 "
    "before the loop, then by each to the next, (consumer + 1) % CONSUMERS. At the end one turn "
    "is left, that of consumer 0. All threads of both consumers call the barrier, and both pass "
    "2 * WARP_GROUP.",
    "divergent_barrier": "All threads of a consumer wait for a turn, and all give it.",
}
BATCH = Problem(((200, 150), (3, 0), (5, 2)), heads=2, dim=64, causal=True, suffix="f16")
WIDE = Problem(((130, 360),), dim=128, suffix="f16")


def cases() -> Iterator[KernelCase]:
    yield from in_every_order(traced(64, 3), orders=("forward", "random"))
    yield from in_every_order(traced(128, 2), orders=("reverse",))
    yield from in_every_order(attention(BATCH))
    yield from in_every_order(attention(WIDE), orders=("random",))


def traced(head_dim: int, consumers: int) -> KernelCase:
    words = f"{consumers} consumers (head_dim {head_dim}), {TILES} tiles of keys"
    return KernelCase(words, problem=None, head_dim=head_dim, consumers=consumers)


def attention(problem: Problem) -> KernelCase:
    return KernelCase(str(problem), problem=problem, head_dim=None)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.problem:
        see_attention(see, path, NAME, case, EXPLAIN, BECAUSE)
        return
    try:
        did = events(path, TILES, case.head_dim, case.how["order"])
    except KernelError as error:
        cuda.note_error(see, error, EXPLAIN)
        did = []
    see_turns(see, did, case.consumers)


def see_turns(see: Observer, did: Sequence[Event], consumers: int) -> None:
    """Products are started in turns, and a turn has nothing else."""
    wanted = [c for _ in range(TILES - 1) for c in range(consumers) for _ in range(2)]
    see.equal("the consumers that start a product, in order", in_turn(did), wanted, TURNS)
    inside = "A turn ends when both products have been started, before any of them is waited for."
    for consumer in range(consumers):
        mine = [event for event in did if event.consumer == consumer]
        see.equal(f"what consumer {consumer} does in its turns", of_turns(mine),
                  ["scores", "output"] * (TILES - 1), inside)  # fmt: skip
    given, taken = (sum(event.what == what for event in did) for what in ("end", "begin"))
    left = "Consumer 0 waits for the last turn at the end: a barrier may not be left half complete."
    see.equal("the turns that are given and not taken", given - taken, 0, left)


def in_turn(did: Sequence[Event]) -> list[int]:
    """Who starts products, without each consumer's first scores and its last output."""
    found = []
    for i, event in enumerate(did):
        earlier = {(e.consumer, e.what) for e in did[:i]}
        later = {(e.consumer, e.what) for e in did[i + 1 :]}
        around = earlier if event.what == "scores" else later
        if event.what in ("scores", "output") and (event.consumer, event.what) in around:
            found.append(event.consumer)
    return found


def of_turns(mine: Sequence[Event]) -> list[str]:
    """What one consumer does between each begin and the next end."""
    found, inside = [], False
    for event in mine:
        if event.what in ("begin", "end"):
            inside = event.what == "begin"
        elif inside:
            found.append(event.what)
    return found


def draw(path: Path) -> object:
    from yaie.course.viz.turns import draw_turns

    need = cycles(128, 128)
    did = events(path, 6, 128, "random")
    return draw_turns(replay(did, need.product, need.exponentials + need.others))
