"""Pictures of notebook 21: builds, a fat binary, a timeline, autograd's graph, a profile."""

from __future__ import annotations

import pytest
import torch

from yaie.course.viz import (
    Build,
    Piece,
    Tray,
    Work,
    draw_autograd,
    draw_binary,
    draw_builds,
    draw_profile,
    draw_tray,
    draw_work,
)


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_builds_say_seconds_and_kilobytes():
    said = texts(draw_builds([Build("slow", 33.7, 212_000), Build("kept", 0.004, None, True)]))
    assert "33.7 s, 212 kB" in said and "0.004 s" in said
    with pytest.raises(ValueError, match="at least one"):
        draw_builds([])


def test_each_card_says_what_it_runs():
    pieces = [Piece("host", 900, "host"), Piece("sm_80", 500), Piece("PTX", 9, "PTX")]
    said = texts(draw_binary(pieces, {"A100": "sm_80", "B200": "PTX", "V100": None}))
    assert {"runs sm_80", "compiles the PTX", "runs none of it"} <= set(said)
    with pytest.raises(ValueError, match="A100 takes 'sm_90', which is none of"):
        draw_binary(pieces, {"A100": "sm_90"})


def test_work_counts_what_it_shows():
    works = [Work(10.0 * i, 5.0, (10.0 * i - 4, 3.0)) for i in range(1, 9)]
    figure = draw_work({"eager": works, "nothing": []}, until=50)
    assert any(text.startswith("4 kernels") and text.endswith("57%") for text in texts(figure))
    together = [Work(0.0, 10.0), Work(5.0, 5.0), Work(15.0, 5.0)]
    figure = draw_work({"overlapping": together}, until=50)
    assert any(text.endswith("75%") for text in texts(figure))
    with pytest.raises(ValueError, match="until must be above 0"):
        draw_work({}, 0)


def test_autograd_graph_names_leaves_and_functions():
    x, weight = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    said = texts(draw_autograd((x @ weight + x).sum(), {"x": x, "weight": weight}))
    assert {"x", "weight", "Mm", "Add", "Sum"} <= set(said)
    with pytest.raises(ValueError, match="must have a grad_fn"):
        draw_autograd(torch.ones(2), {})


def test_profile_has_a_cell_for_each_share():
    rows = {"add": {"dram": 93.2, "l2": 40.0}, "scan": {"dram": 0.1, "l2": 0.4}}
    said = texts(draw_profile(rows, {"dram": "DRAM", "l2": "L2"}, ["DRAM", "too little work"]))
    assert {"93 %", "0 %", "too little work"} <= set(said)
    with pytest.raises(ValueError, match="one text for each of 2 rows"):
        draw_profile(rows, {"dram": "DRAM"}, ["only one"])


def test_tray_tells_rows_from_padding():
    figure = draw_tray(Tray(4, 1, {"slots": [3, 1, 2, 12]}, [1, 2, 3], [3]))
    assert "1 row, replay of size 4" in texts(figure)
    assert "writes [1, 2, 3], [1, 2] of nobody" in texts(figure)
