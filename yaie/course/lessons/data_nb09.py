"""What `yaie bench kernels` measured on an H200, and where it stands under the roof."""

import math
import re
import statistics
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.bench.ceilings import Ceilings
from yaie.course.core import paths
from yaie.course.lessons.intensity import ADD_RMS_NORM, ROTARY, SILU_AND_MUL
from yaie.course.lessons.working_sets import MIB
from yaie.course.viz.charts import Chart, draw_charts
from yaie.course.viz.roofline import Point, Roof

KEPT = "bench_kernels_h200"
# Operations for each component of the input or, for silu_and_mul, of the output; counted as in
# yaie.course.lessons.intensity.
SMALL = {
    "add": 1,
    "add_relu": 2,
    "silu_and_mul": SILU_AND_MUL,
    "rotary": ROTARY,
    "row_sum": 1,
    "softmax": 5,  # the maximum, a difference, exp, the sum, a division
    "rms_norm": ADD_RMS_NORM - 1,
    "add_rms_norm": ADD_RMS_NORM,
}


@dataclass(frozen=True)
class Machine:
    """What was measured on one machine.

    Attributes:
        name, when: the device and the date.
        ceilings: those that were measured, as `yaie.bench.ceilings.Ceilings`.
        results: rows of `yaie.bench.kernels.Row`, those without a time left out.
    """

    name: str
    when: str
    versions: dict[str, str]
    ceilings: Ceilings
    results: list[dict]

    @property
    def bandwidth(self) -> float:
        """Bytes per second that a copy moves."""
        return 1e9 * self.ceilings.copy

    @property
    def peak(self) -> float:
        """Operations per second of the vendor's best product of two large matrices."""
        return 1e12 * max(self.ceilings.matmul.values())

    @property
    def roof(self) -> Roof:
        """Its roof, for a picture."""
        return Roof(self.name, self.peak, self.bandwidth)

    def find(self, operator: str, shape: str = "") -> list[dict]:
        """Rows of an operator, of shapes that have these words, the fastest first."""
        words = shape.split()
        rows = [
            row for row in self.results
            if row["operator"] == operator and all(word in row["shape"].split() for word in words)
        ]  # fmt: skip
        return sorted(rows, key=lambda row: row["ms"])


def kept() -> Machine:
    """The measurements that are kept in `notebooks/data`."""
    return from_record(paths.kept(KEPT))


def from_record(record: dict) -> Machine:
    """The measurements that `yaie.bench.kernels.run` returned, or saved."""
    machine = record["machine"]
    return Machine(
        name=machine.get("gpu") or machine["processor"],
        when=record["date"],
        versions=record["versions"],
        ceilings=Ceilings(**record["ceilings"]),
        results=[row for row in record["results"] if row["ms"] is not None],
    )


def flops(row: dict) -> int:
    """The operations of a row; the benchmark counts them only where matrices are multiplied."""
    if row["flops"]:
        return row["flops"]
    sizes = [int(size) for size in re.findall(r"\d+", row["shape"].replace("2·", ""))]
    return SMALL[row["operator"]] * math.prod(sizes)


def as_point(row: dict, label: str, group: str) -> Point:
    """Where a measured row stands under the roof."""
    work = flops(row)
    return Point(label, work / row["num_bytes"], work / (row["ms"] / 1e3), group)


def working_sets() -> dict:
    """What `yaie.course.lessons.working_sets` measured on an H200."""
    return paths.kept("09_working_sets_h200")


def l2_rate(record: dict) -> float:
    """Bytes per second that L2 delivers: the median over working sets that fit in it, and are
    larger than what a launch loads at a time, of which several SMs would ask for the same bytes."""
    sizes = range(12 * MIB, 48 * MIB + 1)
    rows = [row for row in record["rows"] if row["what"] == "read" and row["num_bytes"] in sizes]
    return 1e9 * statistics.median(row["gb_s"] for row in rows)


def draw_working_sets(record: dict) -> Figure:
    """The rates at which working sets were read and copied, by their size."""
    curves: dict[str, list[tuple[float, float]]] = {"read": [], "copy, read + written": []}
    for row in reversed(record["rows"]):  # the smallest first
        name = next(name for name in curves if name.startswith(row["what"]))
        curves[name].append((row["num_bytes"] / MIB, row["gb_s"]))
    machine = record["machine"]
    name = machine.get("gpu") or machine["processor"]
    title = f"the same bytes again and again · {name}, {record['date']}"
    marks = {"L2": float(machine["L2"].split()[0])} if "L2" in machine else {}
    chart = Chart(title, "different bytes, MiB", "GB/s", curves, marks=marks, log_x=True)
    return draw_charts([chart])


SHOWN = {  # operator and words of its shape -> how it is called in the picture
    ("matmul", ""): "matmul 4096³",
    ("ragged_attention", "d128 causal"): "prefill attention",
    ("softmax", ""): "softmax",
    ("paged_attention", "B64"): "decode attention, 64 sequences",
    ("paged_attention", "B1"): "decode attention, 1 sequence",
}
LIBRARIES, PLAIN, ENGINE = "libraries", "plain PyTorch", "this engine"


def points(machine: Machine) -> list[Point]:
    """Of each operation in the picture the best library, plain PyTorch, and our best back end."""
    found = []
    for (operator, shape), name in SHOWN.items():
        best: dict[str, dict] = {}
        for row in machine.find(operator, shape):  # the fastest first
            best.setdefault(_group(row), row)
        found += [as_point(row, name, group) for group, row in best.items()]
    return found


def _group(row: dict) -> str:
    if row["ours"]:
        return ENGINE
    return PLAIN if row["who"] in ("reference", "torch eager") else LIBRARIES
