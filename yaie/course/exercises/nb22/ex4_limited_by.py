"""22.4: what limits a kernel, read from a profile of one launch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.bottleneck import NAMES
from yaie.course.lessons.data_nb22 import kept

PARTS = ("dram", "l2", "l1", "tensor", "fma", "issue")
WAITS = ("wait_memory", "wait_shared", "wait_barrier", "wait_queue", "wait_mio", "wait_math")


def profile(**values: float) -> dict[str, float]:
    """Metrics of a launch of which everything else is small."""
    parts = {part: 10.0 for part in PARTS} | {wait: 0.1 for wait in WAITS}
    return parts | {"waves": 4.0, "occupancy": 80.0, "compute": 30.0} | values


PLANNED = {
    "a copy": profile(dram=90.0, l2=45.0),
    "a copy that keeps L2 busier than DRAM": profile(dram=89.7, l2=92.2),
    "a product on tensor cores, at an occupancy of 12 %": profile(
        tensor=73.2, l1=53.9, occupancy=12.5
    ),
    "the same in half a wave": profile(tensor=75.0, waves=0.5),
    "products of numbers from shared memory": profile(l1=89.0, issue=42.7, compute=74.7),
    "instructions that crowd": profile(l1=62.0, issue=85.0),
    "shared memory that crowds": profile(l1=95.0, issue=65.0),
    "multiply-adds": profile(fma=60.0, issue=59.9),
    "shared memory at 60 percent": profile(l1=60.0, issue=42.0),
    "four rows": profile(waves=0.01, wait_memory=6.3),
    "attention on tensor cores": profile(
        tensor=53.8, l1=50.4, issue=30.8, wait_memory=0.3, wait_shared=1.2, wait_math=0.6,
        waves=2.0, occupancy=12.2,
    ),
    "one whole wave": profile(waves=1.0, wait_barrier=7.0),
}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, metrics in PLANNED.items():
        yield Case(f"{name} ({in_words(metrics)})", metrics=metrics)
    for row in kept()["kernels"]["rows"]:
        name = f"the measured profile of {row['name']} ({in_words(row['metrics'])})"
        yield Case(name, metrics=row["metrics"])
    generator = random.Random(0)
    for _ in range(300):
        values = {part: generator.choice([20.0, 55.0, 60.0, 75.0, 90.0]) for part in PARTS}
        if generator.random() < 0.5:
            values = {part: min(value, 59.0) for part, value in values.items()}
        values = {part: value + generator.random() / 2 for part, value in values.items()}
        values |= {wait: generator.random() * 9 for wait in WAITS}
        metrics = profile(**values, waves=generator.choice([0.2, 1.0, 3.0]))
        yield Case(f"a profile of {in_words(metrics)}", metrics=metrics)


def in_words(metrics: Mapping[str, float]) -> str:
    parts = ", ".join(f"{part} {metrics[part]:.3g}" for part in PARTS)
    waits = ", ".join(f"{wait[5:]} {metrics[wait]:.2g}" for wait in WAITS)
    return f"{parts}; waves {metrics['waves']:.3g}; waits: {waits}"


def observe(limited_by: Callable[[Mapping[str, float]], str], case: Case, see: Observer) -> None:
    metrics = dict(case.metrics)
    want, because = expected(metrics)
    with see.call("limited_by(metrics)"):
        got = limited_by(metrics)
    see.equal("the limit", got, want, because)


def expected(metrics: Mapping[str, float]) -> tuple[str, str]:
    """The same rules, as a list of candidates in the order of their strength; and the rule."""
    ranked: list[tuple[float, str]] = []
    for outer, part in enumerate(("dram", "l2", "l1")):
        hidden = any(metrics[other] >= 60 for other in ("dram", "l2", "l1")[:outer])
        if metrics[part] >= 60 and not hidden:
            ranked.append((metrics[part], part))
    ranked += [(metrics[part], part) for part in PARTS[3:] if metrics[part] >= 60]
    if ranked:
        percent, part = max(ranked)
        return part, f"{part} is used up, to {percent:.3g} percent."
    if metrics["waves"] < 1:
        return "grid", f"No part reached 60 percent, and waves is {metrics['waves']:.3g}, below 1."
    cycles, wait = max((metrics[wait], wait) for wait in WAITS)
    return wait, f"No part reached 60 percent, and warps wait longest, {cycles:.2g} cycles, there."


def draw(limited_by: Callable[[Mapping[str, float]], str]) -> Any:
    """The measured profiles, with what the function says of each."""
    record = kept()
    rows = {row["name"]: row["metrics"] for row in record["kernels"]["rows"]}
    columns = {
        "dram": "DRAM", "l2": "L2", "l1": "L1, shared", "tensor": "tensor", "fma": "FMA",
        "issue": "issue", "occupancy": "occupancy",
    }  # fmt: skip
    said = [NAMES.get(limited_by(metrics), "?") for metrics in rows.values()]
    title = f"percent of the peak · {record['machine']['gpu']}, {record['date']}"
    return viz.draw_profile(rows, columns, said, ("occupancy",), title)
