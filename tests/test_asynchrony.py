"""What notebook 24 models: rings that are right, rings with a fault, and TMA's swizzle."""

import re
from itertools import product

import pytest

from yaie.build import jit
from yaie.course.lessons.asynchrony import BYTES, Mbarrier, Ring, consume, produce, swizzle


def run(tiles: int, stages: int = 2, expect: int = BYTES, **options) -> Ring:
    ring = Ring(stages)
    ring.run(produce(ring, tiles, expect), consume(ring, tiles, **options))
    return ring


@pytest.mark.parametrize(("stages", "tiles"), [*product(range(1, 6), (0, 1, 2, 5, 13))])
def test_a_ring_reads_every_tile_once_and_whole(stages: int, tiles: int) -> None:
    ring = run(tiles, stages)
    assert ring.read_tiles == [f"tile {i}" for i in range(tiles)] and not ring.stuck
    uses = [len(range(stage, tiles, stages)) for stage in range(stages)]
    for barriers in (ring.full, ring.empty):
        assert [b.phase for b in barriers] == uses
        assert all((b.pending, b.bytes) == (1, 0) for b in barriers)


def test_more_stages_never_read_later() -> None:
    steps = [len(run(12, stages).moments) for stages in range(1, 5)]
    assert steps == sorted(steps, reverse=True) and steps[0] > steps[1]


FAULTS = (  # options, what is read, what is waited for in the end
    ({"parity": lambda use: 0}, "tile 0, tile 1", r"consumer waits for full\[0\], parity 0"),
    ({"parity": lambda use: use % 2 ^ 1}, "half nothing and half tile 0", r"empty\[1\], parity 0"),
    ({"expect": 0}, "half nothing and half tile 0, tile 1", r"full\[0\], parity 1"),
    ({"expect": BYTES // 2}, "tile 0, tile 1, tile 2, tile 3", r"full\[0\], parity 0"),
    ({"expect": 2 * BYTES}, "", r"the producer waits for empty\[0\], parity 0, the consumer waits"),
    ({"early": True}, "half tile 0 and half tile 2, half tile 1 and half tile 3", ""),
)


@pytest.mark.parametrize(("options", "read", "stuck"), FAULTS)
def test_each_fault_has_its_look(options: dict, read: str, stuck: str) -> None:
    ring = run(5, **options)
    assert ", ".join(ring.read_tiles).startswith(read) and bool(read) == bool(ring.read_tiles)
    assert bool(stuck) == bool(ring.stuck) and re.search(stuck, ring.stuck)


def test_with_as_many_tiles_as_stages_a_constant_parity_is_not_noticed() -> None:
    assert run(2, parity=lambda use: 0).read_tiles == ["tile 0", "tile 1"]


def test_an_arrival_too_many_ends_the_run() -> None:
    ring = Ring(1, lambda arrivals: Mbarrier(arrivals))

    def twice():
        ring.full[0].arrive(BYTES)
        ring.full[0].arrive(BYTES)
        yield "asks"

    ring.run(twice(), consume(ring, 1))
    assert ring.stuck == "error in the producer: the phase lacks no arrival"


@pytest.mark.parametrize("span", (16, 32, 64, 128))
def test_a_swizzle_moves_whole_chunks_within_their_line_and_is_its_own_inverse(span: int) -> None:
    places = [swizzle(byte, span) for byte in range(4096)]
    assert sorted(places) == list(range(4096))
    for byte, place in enumerate(places):
        assert swizzle(place, span) == byte
        assert place // span == byte // span and place % 16 == byte % 16
    groups = {swizzle(row * span, span) // 16 % 8 for row in range(8)}
    assert len(groups) == 8  # 8 rows lie in all banks


def test_the_kernel_has_the_same_swizzle() -> None:
    text = (jit.CSRC / "reduce" / "row_product.cu").read_text()
    [body] = re.findall(r"int swizzled\(int byte\) \{ return (.*); \}", text)
    assert all(eval(body, {"byte": byte}) == swizzle(byte, 128) for byte in range(8192))
