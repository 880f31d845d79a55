"""Exercise 21.4: what limits a kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from yaie.course.core.expect import equal, given

PARTS = ("dram", "l2", "l1", "tensor", "fma", "issue")
WAITS = ("wait_memory", "wait_shared", "wait_barrier", "wait_queue", "wait_mio", "wait_math")
OUTERMOST = (
    "DRAM is used up, and what comes from there passes through L2 and L1, so they are busy, too: "
    "of the three the outermost that is used up counts."
)
UNUSED = "No part reached 60 percent: none of them is the limit, so the warps wait."
GRID = (
    "A part is used up, so that is the limit, however few thread blocks there are: a grid of "
    "less than one wave can keep the GPU busy."
)
OCCUPANCY = (
    "Occupancy is no limit: few warps can keep a part busy, if each has much to do, and many can "
    "wait for the same thing."
)


def profile(**values: float) -> dict[str, float]:
    """Metrics of a launch of which everything else is small."""
    parts = {part: 10.0 for part in PARTS} | {wait: 0.1 for wait in WAITS}
    return parts | {"waves": 4.0, "occupancy": 80.0, "compute": 30.0} | values


CASES: list[tuple[str, dict[str, float], str, list[tuple[str, str]]]] = [
    ("a copy", profile(dram=90.0, l2=45.0), "dram",
     [("DRAM", "Return the key, as it stands in `metrics`, not the name that belongs to it.")]),
    ("a copy that keeps L2 busier than DRAM", profile(dram=89.7, l2=92.2), "dram",
     [("l2", OUTERMOST)]),
    ("a product on tensor cores, at an occupancy of 12 %",
     profile(tensor=73.2, l1=53.9, occupancy=12.5), "tensor",
     [("grid", OCCUPANCY), ("wait_memory", OCCUPANCY), ("occupancy", OCCUPANCY)]),
    ("the same in half a wave", profile(tensor=75.0, waves=0.5), "tensor", [("grid", GRID)]),
    ("products of numbers from shared memory", profile(l1=89.0, issue=42.7, compute=74.7), "l1",
     [("compute", "`compute` is no part: it is the highest of all that a multiprocessor does, "
       "loads and stores among it.")]),
    ("instructions that crowd", profile(l1=62.0, issue=85.0), "issue",
     [("l1", "Both are used up, instruction issue to a higher percentage: that is it.")]),
    ("shared memory that crowds", profile(l1=95.0, issue=65.0), "l1",
     [("issue", "Both are used up, L1 to a higher percentage: that is it.")]),
    ("multiply-adds", profile(fma=60.0, issue=59.9), "fma",
     [("wait_memory", "60 percent is used up: `USED` included.")]),
    ("four rows", profile(waves=0.01, wait_memory=6.3), "grid",
     [("wait_memory", "Its warps wait, but most of the GPU has no warps: `waves` is below 1.")]),
    ("attention on tensor cores",
     profile(tensor=53.8, l1=50.4, issue=30.8, wait_memory=0.3, wait_shared=1.2, wait_math=0.6,
             waves=2.0, occupancy=12.2), "wait_shared",
     [("tensor", UNUSED), ("l1", UNUSED), ("grid", OCCUPANCY),
      ("wait_memory", "The reason with the most cycles is the one to look at first.")]),
    ("one whole wave", profile(waves=1.0, wait_barrier=7.0), "wait_barrier",
     [("grid", "`waves` is 1, not below it: there are as many thread blocks as run at once.")]),
]  # fmt: skip


def check_limit(limited_by: Callable[[Mapping[str, float]], str]) -> None:
    """Cases with a known answer, the kernels that were measured, then random profiles."""
    from yaie.course.lessons.data_nb21 import kept

    for name, metrics, wanted, mistakes in CASES:
        what = f"limited_by of {name} ({_told(metrics)})"
        with given(what):
            equal(limited_by(metrics), wanted, what, mistakes=mistakes)
    for row in kept()["kernels"]["rows"]:
        what = f"limited_by of the kept profile of {row['name']} ({_told(row['metrics'])})"
        with given(what):
            equal(limited_by(row["metrics"]), expected(row["metrics"]), what)
    generator = random.Random(0)
    for _ in range(300):
        values = {part: generator.choice([20.0, 55.0, 60.0, 75.0, 90.0]) for part in PARTS}
        if generator.random() < 0.5:
            values = {part: min(value, 59.0) for part, value in values.items()}
        values = {part: value + generator.random() / 2 for part, value in values.items()}
        values |= {wait: generator.random() * 9 for wait in WAITS}
        metrics = profile(**values, waves=generator.choice([0.2, 1.0, 3.0]))
        with given(f"limited_by of {metrics}"):
            equal(limited_by(metrics), expected(metrics), f"limited_by of {_told(metrics)}")


def expected(metrics: Mapping[str, float]) -> str:
    """The same rules, as a list of candidates in the order of their strength."""
    ranked: list[tuple[float, str]] = []
    for outer, part in enumerate(("dram", "l2", "l1")):
        hidden = any(metrics[other] >= 60 for other in ("dram", "l2", "l1")[:outer])
        if metrics[part] >= 60 and not hidden:
            ranked.append((metrics[part], part))
    ranked += [(metrics[part], part) for part in PARTS[3:] if metrics[part] >= 60]
    if not ranked and metrics["waves"] < 1:
        return "grid"
    return max(ranked or [(metrics[wait], wait) for wait in WAITS])[1]


def _told(metrics: Mapping[str, float]) -> str:
    parts = ", ".join(f"{part} {metrics[part]:.3g}" for part in PARTS)
    waits = ", ".join(f"{wait[5:]} {metrics[wait]:.2g}" for wait in WAITS)
    return f"{parts}; waves {metrics['waves']:.3g}; waits: {waits}"


def draw_limits(limited_by: Callable[[Mapping[str, float]], str]) -> Any:
    """The kept profiles, with what the function says of each."""
    from yaie.course.lessons.bottleneck import NAMES
    from yaie.course.lessons.data_nb21 import kept
    from yaie.course.viz import draw_profile

    record = kept()
    rows = {row["name"]: row["metrics"] for row in record["kernels"]["rows"]}
    columns = {
        "dram": "DRAM", "l2": "L2", "l1": "L1, shared", "tensor": "tensor", "fma": "FMA",
        "issue": "issue", "occupancy": "occupancy",
    }  # fmt: skip
    said = [NAMES.get(limited_by(metrics), "?") for metrics in rows.values()]
    title = f"percent of the peak · {record['machine']['gpu']}, {record['date']}"
    return draw_profile(rows, columns, said, ("occupancy",), title)
