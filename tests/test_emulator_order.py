"""Atomics, flags and fences: what they do not order is found; what they order is not accused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from yaie.course.author.gpu.agreement import with_launchers
from yaie.emulator import Module, settings
from yaie.emulator.runtime import ORDERS

SOURCE = Path(__file__).parent / "emulator" / "order.cu"
TEXT = SOURCE.read_text()
ALL = re.findall(r"^LAUNCH\((\w+),", TEXT, re.M)
IDIOMS = ALL[ALL.index("cas_loop") :]
FAULTS = {  # the line of each
    kernel: TEXT.count("\n", 0, TEXT.index("// FAULT: race", TEXT.index(f" {kernel}("))) + 1
    for kernel in ALL
    if kernel not in IDIOMS
}
PLAIN = ("unlocked_right", "atomic_flag_right", "warps_in_turn", "global_mutex", "polls_its_warp")
X = torch.arange(1, 97, dtype=torch.float32)


@pytest.fixture(scope="module")
def kernels():
    return Module(with_launchers(TEXT), SOURCE, checked=True)


def run(kernels, name: str, order: str, seed: int = 3) -> torch.Tensor:
    out = torch.zeros(400)
    with settings(order=order, seed=seed, time_limit=5):
        getattr(kernels, f"run_{name}")(X, out, len(out))
    return out


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_race_is_found(kernels, name, order):
    run(kernels, name, order)
    races = kernels.report.races
    assert kernels.report.findings == races
    assert any(FAULTS[name] in (race.line, race.other_line) for race in races), kernels.report


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [*(f"{name}_right" for name in FAULTS), *IDIOMS])
def test_what_is_ordered_is_not_accused(kernels, name, order):
    for seed in range(3 if order == "random" else 1):
        run(kernels, name, order, seed)
        assert kernels.report.clean, kernels.report
        same = name in ("all_lanes_right", "any_above")
        assert bool(kernels.report.notes) == same, kernels.report


def test_the_same_value_is_told_and_is_no_fault(kernels):
    run(kernels, "all_lanes_right", "forward")
    (note,) = kernels.report.notes
    assert re.fullmatch(
        r"In line \d+ thread 1 and thread 0 both write out\[0\], the same value \(31 times\)\.",
        note.message,
    )
    assert str(kernels.report).startswith(f"no fault found\n  no fault: {note.message}\n")


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_wait_for_each_other_end(kernels, order, checked):
    module = kernels if checked else Module(with_launchers(TEXT), SOURCE)
    for name in PLAIN:
        out = run(module, name, order)
        expected = {
            "unlocked_right": X[:64].sum(),
            "atomic_flag_right": X[0],
            "warps_in_turn": X.sum(),
            "global_mutex": 3 * X[:48].sum(),
            "polls_its_warp": X[31],
        }
        assert out[0] == expected[name], name
    if checked:
        out = run(module, "look_back", order)
        sums = X[:8].cumsum(0) - X[:8]
        assert torch.equal(out[64 : 64 + 256], sums.repeat_interleave(32))
