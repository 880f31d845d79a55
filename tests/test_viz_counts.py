"""Pictures of counts: what is written, how long the bars are, and what lies beyond the end."""

from __future__ import annotations

import pytest
from matplotlib.patches import FancyBboxPatch

from yaie.course.viz import Tally, draw_chance, draw_counts


def words(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_counts_are_written_and_drawn_to_one_scale():
    tallies = [Tally("one", [30, 10, 0], [25, 10, 5]), Tally("two", [60, 0, 0], [50.0, 5.0, 5.0])]
    figure = draw_counts(tallies, [" the", " a", "$x$"])
    assert {"one", "two", "30", "60", "␣the", "$x$"} <= set(words(figure))
    bars = [b for b in figure.axes[0].get_children() if isinstance(b, FancyBboxPatch)]
    lengths = [bar.get_width() for bar in bars]
    assert len(lengths) == 3  # a count of 0 has no bar
    assert lengths[0] / lengths[1] == pytest.approx(3)
    assert lengths[2] / lengths[0] == pytest.approx(2)
    with pytest.raises(ValueError, match="tallies"):
        draw_counts([], [])


def test_counts_of_nothing():
    assert draw_counts([Tally("none", [0, 0], [1.0, 1.0])], ["a", "b"])._repr_png_()


def test_chance_names_what_lies_beyond_its_end():
    figure = draw_chance([0.5, 1.0, 2.0, 4.0], 16.3, {"near": 3.0, "far": 403.7})
    assert "near: 3.0" in words(figure) and "far: 403.7 →" in words(figure)
    assert "limit 16.3" in words(figure)
    assert figure._repr_png_()
