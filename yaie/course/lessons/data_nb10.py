"""Pictures of a processor's roof, of the rungs below it and of a model that answers with them: from
the record that is kept, or from the reader's own."""

from typing import Any

from matplotlib.figure import Figure

from yaie.course.lessons.own_roof import BYTES, RUNGS
from yaie.course.viz.charts import Chart, draw_charts
from yaie.course.viz.results import Rung, draw_ladder
from yaie.course.viz.roofline import Point, Roof, draw_roofline

Record = dict[str, Any]
NAMES = {"float32": "float32", "bfloat16": "bfloat16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
FORMATS = ("float32", "float16", "bfloat16", "q8_0", "q4_0", "q4_1")  # of the engine's weights


def machine(record: Record) -> str:
    """The processor, the threads that were used and the date."""
    found = record["machine"]
    return f"{found['threads']} threads of an {found['processor']}, {record['date']}"


def read_rate(record: Record) -> float:
    """Bytes per second that are read at most: the roof of a product by one vector."""
    return 1e9 * max(*record["read"].values(), record.get("beside", 0.0))


def rungs(record: Record) -> list[Record]:
    """A row for each rung that was measured, with the threads that it has in the ladder."""
    most = record["machine"]["threads"]
    threads = {name: most if everyone else 1 for name, (*_, everyone) in RUNGS.items()}
    rows = {row["name"]: row for row in record["rungs"] if row["threads"] == threads[row["name"]]}
    return [rows[name] for name in RUNGS if name in rows]


def draw_bytes(weights: int, record: Record) -> Figure:
    """The bytes of a token in each format, and the tokens per second that reading them allows."""
    names = list(NAMES.values())
    sizes = [(i, weights * BYTES[form] / 1e6) for i, form in enumerate(NAMES)]
    most = [(i, read_rate(record) / (weights * BYTES[form])) for i, form in enumerate(NAMES)]
    return draw_charts(
        [
            Chart("bytes read for one token", "", "MB", {"": sizes}, names=names),
            Chart(f"at {read_rate(record) / 1e9:.0f} GB/s", "", "tokens per second at most",
                  {"": most}, names=names),
        ]
    )  # fmt: skip


def draw_rungs(record: Record) -> Figure:
    """The rate of each rung as a share of reading alone."""
    return _ways(rungs(record), read_rate(record), "reading", machine(record))


def draw_roof(record: Record) -> Figure:
    """The rungs under the processor's own roof."""
    roof = Roof("registers", 1e9 * record["gflop_s"], read_rate(record))
    points = [
        Point(row["name"], 1e9 * row["gflop_s"] * row["ms"] / 1e3 / row["bytes"],
              1e9 * row["gflop_s"], NAMES[row["form"]])
        for row in rungs(record)
    ]  # fmt: skip
    return draw_roofline([roof], points, machine(record))


def draw_threads(record: Record) -> Figure:
    """GB/s against threads: reading, and two of the rungs."""
    curves = {"reading": sorted((int(n), rate) for n, rate in record["read"].items())}
    for name, label in (("all threads", "float32, four rows"), ("Q8_0", "Q8_0")):
        found = [row for row in record["rungs"] if row["name"] == name]
        curves[label] = sorted((row["threads"], row["gb_s"]) for row in found)
    return draw_charts([Chart(machine(record), "threads", "GB/s", curves)])


def copy_rate(record: Record) -> float:
    """Bytes per second of a copy, loads and stores both counted: the roof of a fused norm."""
    return 1e9 * max(record["copy"].values())


def draw_norm(record: Record) -> Figure:
    """The rate of each way to add and normalize, as a share of a copy."""
    return _ways(record["norm"], copy_rate(record), "copy", machine(record))


def draw_split(record: Record) -> Figure:
    """The rate of each way to attend to a long context, as a share of reading."""
    return _ways(record["split"], read_rate(record), "reading", machine(record))


def _ways(rows: list[Record], roof: float, what: str, title: str) -> Figure:
    bars = [
        Rung(row["name"], 1e9 * row["gb_s"] / roof, f"{row['ms']:5.2f} ms, {row['gb_s']:.1f} GB/s",
             not row["name"].startswith("torch"))
        for row in rows
    ]  # fmt: skip
    return draw_ladder(bars, f"{what}, {roof / 1e9:.0f} GB/s", title)


def engine_rates(record: Record) -> list[str]:
    """A line for each format: how fast the engine's product of one token reads its weights."""
    copy = copy_rate(record) / 1e9
    return [
        f"{row['name']:9} {row['gb_s']:5.1f} GB/s, {row['gb_s'] / copy:4.0%} of copying"
        for row in record["engine"]
    ]


def beside_llama(record: Record) -> list[str]:
    """A line for each format and case: the rates of the engine and of llama.cpp."""
    lines = [f"{'':31}    yaie    llama.cpp"]
    for form in FORMATS:
        for row in record[form]["results"]:
            ours, theirs = row["yaie"]["rate"], row["llama.cpp"]["rate"]
            unit = "prompts/s" if row["case"].startswith("first") else "tokens/s"
            digits = 2 if unit == "prompts/s" else 1
            lines.append(
                f"{form:9} {row['case']:21} {ours:7.{digits}f} and {theirs:7.{digits}f} {unit:9} "
                f"{row['ratio']:5.2f} times as fast"
            )
    return lines


def memory_and_rounding(record: Record) -> list[str]:
    """A line for each format: the memory of `yaie serve` and of llama.cpp's server, in parentheses
    that of our engine process and of llama.cpp without a server, and how far the model moved."""
    lines = []
    for form in FORMATS:
        memory, moved = record[form]["memory_mb"], record[form]["rounding"]
        ours, alone = (memory["yaie serve"][what] for what in ("rss", "engine"))
        theirs, bare = (memory[who]["rss"] for who in ("llama.cpp's server", "llama.cpp"))
        lines.append(
            f"{form:9} {ours:3.0f} ({alone:3.0f}) and {theirs:3.0f} ({bare:3.0f}) MB; "
            f"KL {max(0.0, moved['kl']):.1e}, the same token {moved['same']:.1%}"
        )
    return lines


def draw_answers(record: Record) -> Figure:
    """Tokens per second of the model with each product."""
    rows = record["answers"]
    fastest = max(row["tokens_per_second"] for row in rows)
    bars = [
        Rung(row["name"], row["tokens_per_second"] / fastest,
             f"{row['tokens_per_second']:.1f} tokens/s", not row["name"].startswith("the engine"))
        for row in rows
    ]  # fmt: skip
    return draw_ladder(bars, f"the fastest, {fastest:.0f} tokens/s", machine(record))
