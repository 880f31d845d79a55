"""The kept comparison with compute-sanitizer and Nsight Compute is about the emulator as it is."""

import json

import pytest

from yaie.course.author.gpu import agreement
from yaie.emulator import runtime

KEPT = json.loads(agreement.DATA.read_text())


@pytest.fixture(scope="module")
def faults():
    return agreement.load("faults")


@pytest.mark.parametrize("order", runtime.ORDERS)
@pytest.mark.parametrize("name", agreement.FAULTS)
def test_the_fault_is_found_and_its_twin_is_clean(faults, name, order):
    kind, line = agreement.FAULTS[name]
    with runtime.settings(order=order, seed=3):
        report = agreement.emulate(faults, name, agreement.ELEMENTS, agreement.ELEMENTS)
        assert {f.kind for f in report.findings} == {kind}, report
        # Which side of a pair comes second depends on the schedule.
        assert any(line in (f.line, f.other_line) for f in report.findings), report
        assert f"line {line}" in str(report)
        twin = f"{name}_right"
        report = agreement.emulate(faults, twin, agreement.ELEMENTS, agreement.ELEMENTS)
        assert report.clean, report


def test_every_planted_fault_was_compared():
    assert [row["name"] for row in KEPT["faults"]] == list(agreement.FAULTS)
    for row in KEPT["faults"]:
        kind, line = agreement.FAULTS[row["name"]]
        assert row["kind"] == kind
        assert str(line) in row["emulator"].replace("and", "").split()
    assert KEPT["twins"]["number"] == len(agreement.FAULTS)
    assert not any(KEPT["twins"]["accused_by"].values())


def test_every_difference_is_explained():
    for row in KEPT["faults"] + KEPT["counters"]:
        assert row["agree"] or row["explanation"], row


def test_the_counters_are_those_of_today():
    module = agreement.load("counters")
    kept = {(row["kernel"], row["what"]): row for row in KEPT["counters"]}
    for name, number in agreement.LAUNCHES:
        report = agreement.emulate(module, name, number, 4096)
        for memory, unit in (("global", "sectors"), ("shared", "wavefronts")):
            for operation in agreement.OPERATIONS:
                row = kept.get((f"{name}({number})", f"{unit} per request, {memory} {operation}"))
                lines, requests, units = agreement.emulated(report, memory, operation)
                assert bool(row) == bool(lines)
                if row:
                    assert row["requests"]["emulator"] == requests
                    assert row["emulator"] == pytest.approx(units / requests, abs=1e-3)
