"""The kept figures of notebook 23: all answers right, all cases there, and what the text says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from yaie.bench.load import knee, requests_that_fit
from yaie.bench.oracle import TOLERANCE
from yaie.model.weights import parse_dtype

DATA = Path(__file__).resolve().parents[1] / "notebooks" / "data"
FILES = sorted(DATA.glob("23_*.json"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def record(request):
    return json.loads(request.param.read_text())


def test_there_are_figures_of_both_machines():
    assert {"23_engine_cpu.json", "23_engine_h200.json"} <= {path.name for path in FILES}


def test_no_time_is_kept_of_a_wrong_answer(record):
    allowed = TOLERANCE[parse_dtype(record["subject"]["dtype"])]
    rows = [row for rows in record["results"].values() for row in rows]
    assert rows and {"machine", "versions", "date"} <= set(record)
    for row in rows:
        assert row["checked_answers"] > 0
        assert row.get("worst_gap", 0.0) <= allowed, row
        if record["subject"]["dtype"] == "float32":
            assert row["same_answers"] == row["checked_answers"]


def test_littles_law_holds(record):
    for row in record["results"].get("arrivals", []):
        assert row["finished"] * row["wait_mean"] == pytest.approx(row["in_system"], rel=0.01)


def test_nobody_is_preempted_where_all_fit(record):
    for row in record["results"].get("memory", []):
        fit = requests_that_fit(row["num_blocks"], 16, row["prompt"], row["output"])
        assert row["preemptions"] == 0 or row["at_once"] > fit
        assert row["most_blocks"] <= row["num_blocks"]


def test_the_knee_lies_among_what_was_measured(record):
    rates = {row["at_once"]: row["finished"] for row in record["results"].get("at_once", [])}
    if rates:
        assert min(rates) < knee(rates) < max(rates)
