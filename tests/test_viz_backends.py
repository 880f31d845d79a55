"""The table of back ends as a picture."""

from types import SimpleNamespace

import pytest

from yaie.course.viz import draw_backends


def entry(operator, backend, available=True, chosen=False):
    how = "compiled" if available else "needs sm_90a"
    return SimpleNamespace(
        operator=operator, backend=backend, how=how, available=available, chosen=chosen
    )


TABLE = [
    entry("add", "reference", chosen=True),
    entry("add", "cuda", available=False),
    entry("norm", "reference"),
    entry("norm", "mine", chosen=True),
]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_row_an_operator_and_a_column_a_back_end():
    said = words(draw_backends(TABLE))
    assert [w for w in said if w in ("reference", "cuda", "mine")] == ["reference", "cuda", "mine"]
    assert said.count("compiled") == 3 and said.count("needs sm_90a") == 1


def test_only_some_operators_in_their_order():
    said = words(draw_backends(TABLE, ["norm"]))
    assert "add" not in said and "cuda" not in said
    with pytest.raises(ValueError, match=r"only must name operators of the table, got \['x'\]"):
        draw_backends(TABLE, ["x"])
