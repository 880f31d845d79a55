"""Every planted fault is found with its kind and line, in any order, and no twin is accused."""

import re
from functools import cache

import planted
import pytest
import torch

from yaie.emulator import KernelError, Module
from yaie.emulator.runtime import ORDERS, settings

VERSIONS = {f"{file}-{v.name}": (file, v) for file in planted.FILES for v in planted.versions(file)}
FAULTS = {name: both for name, both in VERSIONS.items() if both[1].kinds}
RIGHT = {name: both for name, both in VERSIONS.items() if not both[1].kinds}


@cache
def kernels(file: str) -> Module:
    return Module(planted.source(file), planted.FOLDER / f"{file}.cu", checked=True)


def run(file: str, version: planted.Version, order: str, module: Module | None = None):
    """The report, x and out."""
    module = module or kernels(file)
    x = torch.arange(1, planted.ELEMENTS + 1, dtype=torch.float32)
    out = torch.zeros(256)[: planted.ELEMENTS]
    try:
        with settings(order=order, seed=3, time_limit=0.1 if version.kinds else 10):
            getattr(module, version.launcher)(x, out, planted.ELEMENTS)
    except KernelError as error:
        assert version.kinds, error
        if version.kinds == {"refused"}:  # an error that a launcher returns is no finding
            (line,) = version.lines
            assert f"line {line}: " in str(error) and module.report.clean
            return None, x, out
    return module.report, x, out


def found(report, version: planted.Version) -> bool:
    """Whether it names the fault's kind and line, and nothing else."""
    if report is None:  # an exception has
        return True
    kinds = {finding.kind for finding in report.findings}
    named = {line for finding in report.findings for line in (finding.line, finding.other_line)}
    some = version.either and kinds and kinds < version.kinds
    return bool((some or kinds == version.kinds) and version.lines & named)


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(name):
    file, version = FAULTS[name]
    reports = {order: run(file, version, order)[0] for order in ORDERS}
    missed = [order for order in ORDERS if not found(reports[order], version)]
    assert len(missed) < len(ORDERS) if version.rare else not missed, reports


def is_right(version: planted.Version, x: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether `out` is the result of the correct version."""
    values = {"x": x, "out": out, "ints": out.view(torch.int32), "torch": torch}
    return bool(eval(version.value or "True", values))


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_accused(name):
    file, version = RIGHT[name]
    for order in ORDERS:
        report, x, out = run(file, version, order)
        assert report.clean, (order, report)
        assert is_right(version, x, out), (order, out)


def test_there_are_enough():
    assert len([version for _, version in FAULTS.values() if not version.rare]) >= 300


def test_the_same_value_is_told_and_is_no_fault():
    report, *_ = run(*RIGHT["warps-all_lanes_store"], "forward")
    (note,) = report.notes
    assert re.fullmatch(
        r"In line \d+ thread 1 and thread 0 both write out\[0\], the same value \(31 times\)\.",
        note.message,
    )
    assert str(report).startswith(f"no fault found\n  no fault: {note.message}\n")


@pytest.mark.parametrize("file", ["shared", "global", "warps", "grid", "clusters"])
def test_without_checks_the_same_is_computed(file):
    """Threads that wait for each other end, though nothing else lets them take turns."""
    module = Module(planted.source(file, faults=False), planted.FOLDER / f"{file}.cu")
    for name in [name for name in RIGHT if name.startswith(file)]:
        for order in ORDERS:
            report, x, out = run(*RIGHT[name], order, module)
            assert report is None and is_right(RIGHT[name][1], x, out), (name, order)


@pytest.mark.parametrize("checked", [False, True])
def test_copies_land_as_late_as_allowed(checked):
    """A sum of what is read too early is therefore wrong in order "forward", with and without
    checks. In order "reverse" copies land immediately."""
    module = Module(planted.source("copies"), planted.FOLDER / "copies.cu", checked)
    for name, order, wanted in (
        ("ring", "forward", True),
        ("ring_1", "forward", False),  # closes no group
        ("ring_5", "forward", False),  # waits for too few
        ("ring_6", "forward", False),  # waits for none
        ("ring_6", "reverse", True),
    ):
        _, x, out = run("copies", VERSIONS[f"copies-{name}"][1], order, module)
        assert is_right(VERSIONS["copies-ring"][1], x, out) == wanted, (name, order)


MESSAGES = {  # in order "forward"
    "bounds-elements_5": "line 10: a load of 4 bytes outside every argument",
    "bounds-elements_7": "an atomic operation of 4 bytes, 4 bytes past the end of out (388 bytes)",
    "local-own_sum_1": "line 97: reads sum, to which the thread has given no value",
    "local-accumulators_1": "line 116: reads factor[0], to which the thread has given no value",
    "launches-memory_5": "line 86, in the launcher: a load of 4 bytes in x, memory of the device",
    "launches-memory_12": "line 76: a load of 4 bytes in memory that cudaFree has freed",
    "copies-one_copy_3": "a load of 16 bytes at an address that is no multiple of 16, byte 8",
    "copies-ring_6": "In line 66 thread 0 reads stages[0][0] before the asynchronous copy to it, "
    "which it started in line 46, has been waited for (32 times).",
    "clusters-exchange_1": "In line 22 thread 0 of thread block 0 reads own[31] of its "
    "cluster's thread block 1, which may not have started: no barrier of the cluster stands before",
    "clusters-exchange_5": "reads own[0] of its cluster's thread block 1, which may have ended",
    "clusters-exchange_7": "waits for the cluster, to whose barrier not all of its threads come",
    "clusters-sums_1": "thread block 1 changes atomically sum[0] of its cluster's thread block 0",
    "clusters-split_2": "waits at the cluster's barrier, where it has not arrived",
    "clusters-handshake_7": "is another thread block's, and only a thread of that block can wait",
    "clusters-multicast_2": "full[0] gets 64 bytes in this phase, of which its threads expect 32; "
    "thread block (1, 0, 0)",
    "clusters-multicast_5": "of thread block (0, 0, 0) names thread block 2 of a cluster of 2",
    "clusters-multicast_8": "writes row[0] of its cluster's thread block 1 before the",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_says_what_is_wrong(name):
    report, *_ = run(*VERSIONS[name], "forward")
    assert MESSAGES[name] in "\n".join(map(str, report.findings)), report
