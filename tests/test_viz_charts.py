"""Pictures of measured curves and of requests on a line of time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from yaie.bench.load import Trace
from yaie.course.viz import Chart, draw_arrivals, draw_benchmark, draw_charts, draw_requests

DATA = Path(__file__).resolve().parents[1] / "notebooks" / "data"


def words(figure) -> set[str]:
    return {text.get_text() for ax in figure.axes for text in ax.texts}


def test_charts_name_their_curves_guides_and_marks():
    chart = Chart(
        "Title", "x", "y", {"one": [(1, 2.0), (2, 3.0), (64, 9.0)]},
        guides={"most": [(1, 9), (64, 9)]}, marks={"knee": 8.0}, log_x=True,
    )  # fmt: skip
    figure = draw_charts([chart, chart])
    assert {"Title", "one", "most", " knee"} <= words(figure)
    ticks = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert ticks == ["1", "2", "64"]
    assert figure._repr_png_()
    assert draw_charts([Chart("t", "x", "y", {"": [(0, 0), (1, 0)]}, steps=True)])._repr_png_()
    with pytest.raises(ValueError, match="charts must hold"):
        draw_charts([])


def test_a_log_scale_shows_all_curves():
    chart = Chart("t", "x", "y", {"a": [(1, 0.01)], "b": [(1, 900.0)]}, log_y=True)
    low, high = draw_charts([chart]).axes[1].get_ylim()
    assert low < 0.01 and high > 900


def test_bars_stand_beside_each_other():
    chart = Chart("t", "", "ms", {"a": [(0, 3.0), (1, 5.0)], "b": [(1, 2.0)]}, names=["one", "two"])
    bars = draw_charts([chart]).axes[1]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["one", "two"]
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars.patches)
    assert len(spans) == 3 and all(a[1] <= b[0] for a, b in pairwise(spans))
    assert [bar.get_height() for bar in bars.patches] == [3.0, 5.0, 2.0]


def test_requests_lie_on_one_line_of_time():
    traces = {"a": Trace(10.0, [10.5, 11.0]), "b": Trace(10.2, [12.0])}
    figure = draw_requests(traces)
    assert {"a", "b", "0 s", "2 s"} <= words(figure)
    assert figure._repr_png_()
    with pytest.raises(ValueError, match="traces must hold"):
        draw_requests({})


def test_arrivals_are_strokes():
    figure = draw_arrivals({"even": [1.0, 2.0, 3.0], "none": []})
    strokes = [line for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert len(strokes) >= 3 and {"even", "none"} <= words(figure)
    with pytest.raises(ValueError, match="arrivals must hold"):
        draw_arrivals({"none": []})


def test_a_record_on_one_page():
    kept = json.loads((DATA / "23_engine_cpu.json").read_text())
    figure = draw_benchmark(kept)
    assert {"Throughput, prompt → output", "Under way, by requests sent a second"} <= words(figure)
    assert {"no prefix cache", "Prefix cache: first token"} <= words(figure)
    assert any("SmolLM2-135M-Instruct, float32" in text for text in words(figure))
    assert figure._repr_png_()
    with pytest.raises(ValueError, match="record must have one of matrix"):
        draw_benchmark(kept | {"results": {"block_size": []}})
