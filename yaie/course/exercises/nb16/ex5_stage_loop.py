"""16.5: what thread 0 does, tile by tile, then the product with every access checked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase, in_every_order
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb16.products import product_of, see_product
from yaie.course.lessons.data_nb16 import stage_events

NAME = "matmul_mma"
TILES = 8  # of k, where a thread is followed
SIZES = ((16, 16, 192), (40, 264, 72))
ONCE = ((8, 8, 32), (16, 24, 0), (264, 8, 96))
BECAUSE = "Each of the tiles 0, 1, … tiles - 1 is multiplied once, in STEPS steps of k."
EXPLAIN = {
    "race": "Read a stage after all threads have waited, overwrite it after all have read it.",
    "uninitialized": "Tile t lies in stage t % STAGES, once its copies have been started.",
    "out_of_bounds": "copy_tiles moves on by a tile per call: call it with 0, 1, 2, … in order.",
}


def cases() -> Iterator[KernelCase]:
    yield KernelCase(f"thread 0, for {TILES} tiles of k", size=None)
    yield from in_every_order(*(product_of(*size, "f16") for size in SIZES))
    for size in ONCE:
        yield product_of(*size, "f16")


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    if case.size:
        see_product(see, path, NAME, case, EXPLAIN, BECAUSE)
        return
    stages, events = stage_events(path, TILES)
    did = follow(events)
    lies = (
        "copy_tiles(tile, place) brings its tile to stage `place`, where load_fragments reads it."
    )
    see.equal(
        "the list of tiles in the order in which they are read",
        did.read[:TILES],
        [*range(TILES)],
        lies,
    )
    see.equal(
        *("the list of tiles that are read before their copies have landed", did.early, []),
        "cp_async_wait<PENDING> leaves the PENDING newest groups in flight: count those that are "
        "newer than the one to be read. Past the last tile, too, copy_tiles closes a group.",
    )
    see.equal(
        *("the list of tiles that are read with no barrier after the wait for them", did.unmet, []),
        "A wait covers the thread's own copies. After a barrier the others' have landed, too.",
    )
    see.equal(
        *("the list of tiles copied to a stage with no barrier after it was read", did.over, []),
        "Another warp may still read that stage.",
    )
    after = "Then c is written through the stages, so nothing may be in flight."
    see.equal("the groups in flight after the loop", did.in_flight, 0, after)
    meet = "Then c is written through the stages: all threads must have waited and read."
    see.true("after the last wait and the last read", did.met, "no barrier follows", meet)
    see_waits(see, stages, did.products)


def see_waits(see: Observer, stages: int, products: Sequence[float]) -> None:
    """No tile is waited for earlier than the number of stages makes necessary."""
    least = [min(max(tile - 1, 0), stages - 1) for tile in range(TILES)]
    late = [
        t for t, (had, want) in enumerate(zip(products, least, strict=False)) if had < want - 0.5
    ]
    problem = ""
    if late:
        problem = (
            f"come too early: tile {late[0]} is waited for after {products[late[0]]:g} of the "
            f"{least[late[0]]} products that its copy can overlap"
        )
    because = (
        f"With {stages} stages, {stages - 1} copies are in flight while a tile is multiplied. "
        "Start the copy of tile t + STAGES - 1 after the barrier, before the products of tile t."
    )
    see.note("the waits", products, problem, because)


@dataclass
class Followed:
    """What a thread did.

    Attributes:
        read: tiles in the order in which it loads their fragments; -1 is a stage without one.
        early, unmet: of these, those whose copy was not waited for, or without a barrier since.
        over: tiles that are copied to a stage with no barrier since it was read.
        products: for each of the first `TILES` tiles, between its copy's start and the wait for it.
        in_flight: groups at the end.
        met: whether a barrier followed all waits and loads.
    """

    read: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    unmet: list[int] = field(default_factory=list)
    over: list[int] = field(default_factory=list)
    products: list[float] = field(default_factory=list)
    in_flight: int = 0
    met: bool = False


def follow(events: Sequence[tuple[str, float]]) -> Followed:
    """Keep count of what each stage holds, and of what has landed."""
    did, holds, recent = Followed(), {}, set()  # of stages: their tile, and those read recently
    started, landed, met, multiplied = [], 0, 0, 0.0
    for what, number in events:
        if what == "copy":
            if number in recent:
                did.over.append(len(started))
            holds[number] = len(started)
            started.append(multiplied)
        elif what == "wait":
            now = max(landed, len(started) - int(number))
            did.products += [multiplied - began for began in started[landed:now]]
            landed = now
        elif what == "barrier":
            met = landed
            recent.clear()
        elif what == "product":
            multiplied += number
        elif what == "load":
            tile = holds.get(number, -1)
            recent.add(number)
            if did.read[-1:] == [tile]:
                continue
            did.read.append(tile)
            if tile >= landed:
                did.early.append(tile)
            elif tile >= met:
                did.unmet.append(tile)
    did.products = did.products[:TILES]
    did.in_flight, did.met = len(started) - landed, met == landed and not recent
    return did


def draw(path: Path) -> Any:
    """The learner's loop along time, in the notebook's model."""
    from yaie.course.viz.tensor_core import draw_pipeline, replay

    return draw_pipeline(replay(*stage_events(path, TILES)))
