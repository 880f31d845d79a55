"""Pictures of kernels: banks of a tile, the steps of a sum, what each line costs."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from yaie.course.viz import (
    Stage,
    TileAccess,
    draw_costs,
    draw_reduction,
    draw_tile_banks,
    film_strip,
)
from yaie.course.viz.memory import statement


def column(pitch: int, size: int = 4) -> TileAccess:
    return TileAccess({lane: (lane * pitch + 3) * size for lane in range(32)}, pitch)


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 32), (33, 1), (34, 2), (36, 4), (40, 8)])
def test_wavefronts_of_a_column(pitch, wavefronts):
    state = column(pitch)
    assert state.wavefronts == wavefronts
    said = [text for text in texts(draw_tile_banks(state)) if "fullest bank" in text]
    assert len(said) == 1 and f": {wavefronts} wavefront" in said[0]


def test_lanes_that_share_a_word_ask_for_it_once():
    assert TileAccess(dict.fromkeys(range(32), 12), 32).wavefronts == 1


def test_tiles_fit_a_film_strip():
    figure = film_strip([column(32), column(33)], draw_tile_banks, ["[32][32]", "[32][33]"])
    assert figure.get_size_inches()[0] <= 10


def test_bad_tiles():
    with pytest.raises(ValueError, match="at least one lane"):
        draw_tile_banks(TileAccess({}, 32))
    with pytest.raises(ValueError, match="word 1024 is past 32 rows of 32"):
        draw_tile_banks(TileAccess({0: 4096}, 32))


@pytest.mark.parametrize("count", [2, 7, 16, 32])
def test_steps_of_a_sum(count):
    values, stages = [float(i) for i in range(count)], []
    stages.append(Stage(list(values), {}, "given"))
    left = count
    while left > 1:
        half = (left + 1) // 2
        reads = {place: place + half for place in range(left - half)}
        for place, other in reads.items():
            values[place] += values[other]
        stages.append(Stage(list(values), reads, f"half = {half}"))
        left = half
    said = texts(draw_reduction(stages, "place"))
    assert f"{sum(range(count)):g}" in said and "half = 1" in said
    with pytest.raises(ValueError, match="each step must have"):
        draw_reduction([stages[0], Stage([1.0], {}, "")])
    with pytest.raises(ValueError, match="got none"):
        draw_reduction([])


def access(line: int, units: int, ideal: int, requests: int = 2):
    return SimpleNamespace(
        line=line, memory="global", kind="load", unit="sectors", units=units, ideal_units=ideal,
        per_request=units / requests, ideal=ideal / requests,
    )  # fmt: skip


def test_costs_show_whole_statements():
    lines = ["for (int d = 0; d < n; ++d)", "x[d] =", "y[d]  // why", "+ 1;", "if (x) {", "z;"]
    shown = [statement(lines, number) for number in range(1, 7)]
    assert shown[1:4] == ["x[d] = y[d] + 1;", "… y[d] + 1;", "… + 1;"]
    assert shown[4:] == ["if (x) {", "z;"] and shown[0] == "for (int d = 0; d < n; ++d)"


def test_costs_of_lines():
    generator = random.Random(0)
    accesses = [access(1, 8, 8), access(2, 64, 8)]
    accesses += [access(n, generator.randrange(8, 64), 8) for n in range(3, 30)]
    report = SimpleNamespace(accesses=accesses, source="a $load$;\n" + "x" * 500)
    said = texts(draw_costs(report))
    assert "4 sectors" in said and "32 sectors" in said and "a $load$;" in said
    with pytest.raises(ValueError, match="got none"):
        draw_costs(SimpleNamespace(accesses=[], source=""))
