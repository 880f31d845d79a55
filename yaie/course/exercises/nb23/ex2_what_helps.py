"""23.2: what limits a kernel, read from a profile, and what each change would leave of its time."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.bottleneck import NAMES, Change
from yaie.course.lessons.data_nb23 import kept

PARTS = ("dram", "l2", "l1", "tensor", "fma", "issue")
WAITS = ("wait_memory", "wait_shared", "wait_barrier", "wait_queue", "wait_mio", "wait_math")
CHANGES = {
    "nothing is changed": Change(),
    "numbers of half the bytes": Change({"dram": 0.5, "l2": 0.5, "l1": 0.5}),
    "a quarter of the sectors": Change({"l2": 0.25}),
    "no bank conflicts": Change({"l1": 0.1}),
    "half the instructions": Change({"fma": 0.5, "issue": 0.5}),
    "room for twice the warps": Change(warps=2.0),
    "8 times the thread blocks": Change(blocks=8.0),
    "tiles twice as large: half the loads, half the warps": Change({"l2": 0.5, "l1": 0.5}, 0.5),
}
LAUNCH = {
    "nanoseconds": 100_000.0, "thread_blocks": 4224.0, "threads": 256.0, "occupancy_most": 100.0,
    "occupancy": 80.0, "compute": 30.0, "waves": 4.0,
}  # fmt: skip


def profile(**values: float) -> dict[str, float]:
    """Metrics of a launch of four waves of which everything else is small."""
    return {part: 10.0 for part in PARTS} | {wait: 0.1 for wait in WAITS} | LAUNCH | values


def few(thread_blocks: int, **values: float) -> dict[str, float]:
    """The same of a small grid; ncu shows its waves with two decimals."""
    waves = round(thread_blocks / (132 * 8), 2)
    return profile(thread_blocks=float(thread_blocks), waves=waves, **values)


PLANNED = {
    "a copy": profile(dram=90.0, l2=45.0),
    "a copy that keeps L2 busier than DRAM": profile(dram=89.7, l2=92.2),
    "a product on tensor cores, at an occupancy of 12 %": profile(
        tensor=73.2, l1=53.9, occupancy=12.5, occupancy_most=12.5, thread_blocks=512.0, waves=3.88
    ),
    "a store of scattered numbers": profile(l2=80.0, l1=50.0, dram=12.0),
    "products of numbers from shared memory": profile(l1=89.0, issue=42.7, compute=74.7),
    "instructions that crowd": profile(l1=62.0, issue=85.0),
    "shared memory that crowds": profile(l1=95.0, issue=65.0),
    "multiply-adds": profile(fma=60.0, issue=59.9),
    "shared memory at 60 percent": profile(l1=60.0, issue=42.0),
    "16 thread blocks that multiply": few(16, fma=10.4, l1=4.0, l2=1.0, dram=1.0),
    "half a wave, and DRAM at its limit": few(528, dram=75.0, l2=60.0),
    "66 thread blocks, and DRAM at half": few(66, dram=45.0, l2=40.0, l1=20.0),
    "one thread block that waits at barriers": few(
        1, dram=0.1, l2=0.2, l1=0.2, tensor=0.0, fma=0.1, issue=0.1, wait_barrier=6.0
    ),
    "200 thread blocks that wait for loads": few(200, wait_memory=9.0),
    "one thread block less than a wave": few(1055, wait_barrier=7.0),
    "one whole wave": profile(thread_blocks=1056.0, waves=1.0, wait_barrier=7.0),
    "attention on tensor cores": profile(
        tensor=53.8, l1=50.4, issue=30.8, wait_memory=0.3, wait_shared=1.2, wait_math=0.6,
        thread_blocks=264.0, occupancy_most=12.5, occupancy=12.2, waves=2.0,
    ),
    "a chain of loads": profile(wait_memory=21.0, dram=30.0, l2=25.0),
    "a chain of loads, with few warps": profile(
        wait_memory=21.0, dram=14.0, occupancy_most=25.0, thread_blocks=1056.0
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, metrics in PLANNED.items():
        yield Case(f"{name} ({in_words(metrics)})", metrics=metrics, changes=CHANGES)
    for row in kept()["kernels"]["rows"]:
        name = f"the measured profile of {row['name']} ({in_words(row['metrics'])})"
        yield Case(name, metrics=row["metrics"], changes=CHANGES)
    generator = random.Random(0)
    for _ in range(300):
        metrics = draw_one(generator)
        changes = {f"random change {i + 1}": a_change(generator) for i in range(3)}
        yield Case(f"a profile of {in_words(metrics)}", metrics=metrics, changes=changes)


def draw_one(generator: random.Random) -> dict[str, float]:
    values = {part: generator.choice([20.0, 55.0, 60.0, 75.0, 90.0]) for part in PARTS}
    if generator.random() < 0.6:
        values = {part: min(value, 59.0) for part, value in values.items()}
    values = {part: value + generator.random() / 2 for part, value in values.items()}
    waits = {wait: generator.random() * 9 for wait in WAITS}
    blocks = generator.choice([3, 20, 100, 132, 200, 1056, 5000])
    share = min(1.0, blocks / 132)
    for part in PARTS[2:]:
        values[part] *= share  # at most 100 percent of the SMs that work
    most = generator.choice([25.0, 50.0, 100.0])
    metrics = few(blocks, **values, **waits, occupancy_most=most)
    return metrics | {"nanoseconds": float(generator.randint(2, 900) * 1000)}


def a_change(generator: random.Random) -> Change:
    work = {part: generator.choice([0.1, 0.5, 1.5]) for part in generator.sample(PARTS, 2)}
    return Change(work, generator.choice([0.5, 1, 2, 4]), generator.choice([1, 1, 2, 8, 50]))


def in_words(metrics: Mapping[str, float]) -> str:
    parts = ", ".join(f"{part} {metrics[part]:.3g}" for part in PARTS)
    waits = ", ".join(f"{wait[5:]} {metrics[wait]:.2g}" for wait in WAITS)
    blocks = f"{metrics['thread_blocks']:,.0f} thread blocks of {metrics['threads']:.0f}"
    most = f"occupancy at most {metrics['occupancy_most']:.3g}"
    return f"{parts}; {blocks}, {most}; waits: {waits}"


def observe(what_helps: Callable[..., Any], case: Case, see: Observer) -> None:
    changes = list(case.changes.values())
    with see.call("what_helps(metrics, changes)"):
        got = what_helps(dict(case.metrics), changes)
    limit, least = see.parts("what_helps(metrics, changes)", got, "limit", "least")
    want, because = the_limit(case.metrics)
    see.equal("the limit", limit, want, because)
    see.kind("the times", least, list)
    see.equal("the number of times", len(least), len(changes), "There is one for each change.")
    see.stop_if_wrong()
    for (name, change), came in zip(case.changes.items(), least, strict=True):
        wanted, why = the_least(case.metrics, change, want)
        words = f"nanoseconds after the change {in_short(name, change)}"
        see.close(words, float(came), wanted, why, rtol=1e-6, atol=0.0)


def in_short(name: str, change: Change) -> str:
    factors = {**change.work, "warps": change.warps, "blocks": change.blocks}
    words = [f"{key} × {factor:g}" for key, factor in factors.items() if factor != 1]
    return f'"{name}" ({", ".join(words) or "factors of 1"})'


def really(metrics: Mapping[str, float], part: str, blocks: float = 1) -> float:
    """The percentage of a part of an SM that works, or of DRAM or L2."""
    idle = max(0.0, 132 - metrics["thread_blocks"] * blocks)
    return metrics[part] if part in ("dram", "l2") else metrics[part] * 132 / (132 - idle)


def the_limit(metrics: Mapping[str, float]) -> tuple[str, str]:
    """The same rules, as a list of candidates in the order of their strength; and the rule."""
    ranked: list[tuple[float, str]] = []
    for outer, part in enumerate(PARTS[:3]):
        hidden = any(really(metrics, other) >= 60 for other in PARTS[:outer])
        if really(metrics, part) >= 60 and not hidden:
            ranked.append((really(metrics, part), part))
    ranked += [(really(metrics, p), p) for p in PARTS[3:] if really(metrics, p) >= 60]
    if ranked:
        percent, part = max(ranked)
        shown = f" (shown: {metrics[part]:.3g})" if percent != metrics[part] else ""
        return part, f"{part} is used up, to {percent:.3g} percent{shown}."
    waves = in_waves(metrics)
    if waves < 1:
        return "grid", f"No part reached 60 percent, and there are {waves:.2g} waves, less than 1."
    cycles, wait = max((metrics[wait], wait) for wait in WAITS)
    return wait, f"No part reached 60 percent, and warps wait longest, {cycles:.2g} cycles, there."


def in_waves(metrics: Mapping[str, float], blocks: float = 1, warps: float = 1) -> float:
    """How many times the GPU has to be filled with the thread blocks."""
    warps_of_a_block = (metrics["threads"] + 31) // 32
    resident = 64 * metrics["occupancy_most"] / 100 // warps_of_a_block * warps
    return metrics["thread_blocks"] * blocks / resident / 132


def the_least(metrics: Mapping[str, float], change: Change, limit: str) -> tuple[float, str]:
    """The least time after a change, and what decides it."""
    whole = metrics["nanoseconds"]
    bounds = [
        (whole * really(metrics, part, change.blocks) * change.work.get(part, 1) / 100, part)
        for part in PARTS
    ]
    if limit not in PARTS:
        of_a_block = whole / max(in_waves(metrics), 1.0) / change.blocks
        rounds = max(in_waves(metrics, change.blocks, change.warps), 1.0)
        bounds.append((of_a_block * rounds, "waiting"))
    least, what = max(bounds)
    words = "The warps still wait" if what == "waiting" else f"{what} is then busy"
    return least, f"{words} for {least:,.0f} of the {whole:,.0f} ns that the kernel took before."


def draw(what_helps: Callable[..., Any]) -> Any:
    """The measured profiles, with what the function says of each."""
    record = kept()
    rows = {row["name"]: row["metrics"] for row in record["kernels"]["rows"]}
    columns = {
        "dram": "DRAM", "l2": "L2", "l1": "L1, shared", "tensor": "tensor", "fma": "FMA",
        "issue": "issue", "occupancy": "occupancy",
    }  # fmt: skip
    said = [NAMES.get(what_helps(metrics, [])[0], "?") for metrics in rows.values()]
    title = f"percent of the peak · {record['machine']['gpu']}, {record['date']}"
    return viz.draw_profile(rows, columns, said, ("occupancy",), title)
