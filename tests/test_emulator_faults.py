"""Every planted fault is reported with its kind and line, and no correct twin is accused."""

import re

import pytest
import torch

from yaie.course.author.gpu.agreement import FAULTS, HERE, with_launchers
from yaie.emulator import runtime
from yaie.emulator.launch import KernelError, Module

SOURCE = HERE / "faults.cu"
N = 97  # elements of x and out: no multiple of anything


@pytest.fixture(scope="module")
def kernels():
    return Module(with_launchers(SOURCE.read_text()), SOURCE, checked=True)


def run(kernels, name: str):
    x = torch.arange(1, N + 1, dtype=torch.float32)
    out = torch.zeros(N + 159)[:N]
    try:
        getattr(kernels, f"run_{name}")(x, out, N)
    except KernelError:
        assert kernels.report.of_kind("deadlock"), "only a deadlock stops the launch"
    return kernels.report


def test_there_are_enough_and_each_has_a_twin():
    kernels = re.split(r"(?=__global__ void )", SOURCE.read_text())[1:]
    assert len(kernels) == len(FAULTS) >= 40
    for name, kernel in zip(FAULTS, kernels, strict=True):
        assert "RIGHT" in kernel and f"LAUNCH({name}," in kernel, name


@pytest.mark.parametrize("order", runtime.ORDERS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_reported(kernels, name, order):
    kind, line = FAULTS[name]
    with runtime.settings(order=order, seed=3):
        report = run(kernels, name)
    assert {f.kind for f in report.findings} == {kind}, report
    # Which side of a pair comes second depends on the schedule.
    assert any(line in (f.line, f.other_line) for f in report.findings), report
    assert f"line {line}" in str(report)


@pytest.mark.parametrize("order", runtime.ORDERS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_twin_is_clean(kernels, name, order):
    with runtime.settings(order=order, seed=3):
        report = run(kernels, f"{name}_right")
    assert report.clean, report
